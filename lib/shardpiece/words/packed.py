"""Packed words: sorted rows of (word, group, count) in few bytes, as tasks hand them to each other; and their merging.

A piece is a header and rows (see ``packed_kernels``). Pieces from many tasks are merged into sorted rows with equal ones added
up, in memory that follows what they hold, not how many there are.
"""

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardpiece.words import packed_kernels as k

# Magic number, bytes of the names of the groups (a JSON list), length of the longest word.
_HEADER = struct.Struct("<4sII")
_MAGIC = b"spw1"
_OUT_ROWS = 1 << 16
_OUT_BYTES = 4 << 20
_HELD_BYTES = 128 << 20


@dataclass(frozen=True)
class Rows:
    """Words of a table, in order of word and group: ``words`` uint8, ``offsets`` int32 [n + 1], ``groups`` int32 [n], numbers
    of names, ``counts`` int64 [n]. A view of memory that the next rows may be written to."""

    words: np.ndarray
    offsets: np.ndarray
    groups: np.ndarray
    counts: np.ndarray

    def to_batch(self, names: pa.StringArray) -> pa.RecordBatch:
        """A copy as a batch (word: binary, group: string, count: int64); ``names`` of the groups by their numbers."""
        n = len(self.counts)
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.words.tobytes())]
        word = pa.Array.from_buffers(pa.binary(), n, buffers)
        group = pa.DictionaryArray.from_arrays(pa.array(self.groups), names).dictionary_decode()
        return pa.RecordBatch.from_arrays([word, group, pa.array(self.counts)], names=["word", "group", "count"])


def pack(rows: Rows, names: list[str]) -> np.ndarray:
    """One piece (uint8). The rows are sorted by word and by the name of their group, and no two have both alike."""
    used = np.flatnonzero(np.bincount(rows.groups, minlength=len(names))).tolist()
    used.sort(key=names.__getitem__)
    numbers = np.zeros(len(names), np.int32)
    numbers[used] = np.arange(len(used))
    text = json.dumps([names[i] for i in used]).encode()
    first = _HEADER.size + len(text)
    out = np.empty(first + len(rows.words) + len(rows.counts) * k.MOST_PER_ROW, np.uint8)
    end, longest = k.pack(rows.words, rows.offsets, rows.groups, rows.counts, numbers, out, first)
    out[:first] = np.frombuffer(_HEADER.pack(_MAGIC, len(text), longest) + text, np.uint8)
    return out[:end]


class Merger:
    """Collects pieces with ``add``, in any order; ``batches`` gives their rows merged.

    Pieces are held as they are, 10 to 20 bytes a row, until they are ``memory`` bytes; then they are merged into one, and
    again when twice as much has come together. So a merger takes ``memory`` bytes, or four times what the pieces come to when
    equal rows are added up.
    """

    def __init__(self, memory: int = _HELD_BYTES):
        self._memory = memory
        self._limit = memory
        self._held = 0
        self._runs: list[list[np.ndarray]] = []

    def add(self, piece: np.ndarray | pa.Buffer) -> None:
        piece = np.frombuffer(piece, np.uint8)
        self._runs.append([piece])
        self._held += len(piece)
        if self._held > self._limit and len(self._runs) > 1:
            names = self._names()
            self._runs = [[pack(rows, names).copy() for rows in self._merged(names)]]
            self._held = sum(map(len, self._runs[0]))
            self._limit = max(self._memory, 2 * self._held)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches (word: binary, group: string, count: int64), sorted by word and group; the merger is empty then."""
        names = self._names()
        values = pa.array(names, pa.string())
        for rows in self._merged(names):
            yield rows.to_batch(values)

    def _names(self) -> list[str]:
        """All groups, in order."""
        return sorted({name for run in self._runs for piece in run for name in _read_header(piece)[0]})

    def _merged(self, names: list[str]) -> Iterator[Rows]:
        runs, self._runs, self._held = self._runs, [], 0
        if not runs:
            return
        places = {name: i for i, name in enumerate(names)}
        # Before the pieces, one of no rows for each run, which its first one follows.
        n_runs, n_pieces = len(runs), sum(map(len, runs))
        ends = np.zeros((n_runs + n_pieces, 2), np.int64)
        following = np.full(n_runs + n_pieces, -1, np.int64)
        name_starts = np.zeros(n_runs + n_pieces, np.int64)
        numbers: list[int] = []
        state = np.zeros((n_runs, k.STATE_SIZE), np.int64)
        data = np.zeros(sum(len(piece) for run in runs for piece in run) + 8, np.uint8)
        at = text_size = longest = 0
        number = n_runs
        for r, run in enumerate(runs):
            last = r
            longest_of_run = 0
            for piece in run:
                own, first, longest_of_piece = _read_header(piece)
                data[at : at + len(piece)] = piece
                ends[number] = at + first, at + len(piece)
                at += len(piece)
                name_starts[number] = len(numbers)
                numbers += [places[name] for name in own]
                following[last] = number
                last = number
                number += 1
                longest_of_run = max(longest_of_run, longest_of_piece)
            run.clear()  # its memory is free while the next ones are copied
            state[r, k.PIECE] = r
            state[r, k.TEXT] = text_size
            text_size += longest_of_run + 16
            longest = max(longest, longest_of_run)
        heads = np.zeros((n_runs, 2), np.uint64)
        tree = np.zeros(n_runs, np.int64)
        source = (data, ends, following, name_starts, np.array(numbers, np.int32), state, heads,
                  np.zeros(text_size, np.uint8), tree)  # fmt: skip
        k.start(*source, np.zeros(2 * n_runs, np.int64))
        words = np.empty(max(_OUT_BYTES, longest), np.uint8)
        while True:
            offsets, groups = np.empty(_OUT_ROWS + 1, np.int32), np.empty(_OUT_ROWS, np.int32)
            counts = np.empty(_OUT_ROWS, np.int64)
            n = k.merge(*source, words, offsets, groups, counts)
            if not n:
                return
            yield Rows(words[: offsets[n]], offsets[: n + 1], groups[:n], counts[:n])


def merge(pieces: Iterable[np.ndarray | pa.Buffer]) -> Iterator[pa.RecordBatch]:
    """The rows of some pieces, merged."""
    merger = Merger()
    for piece in pieces:
        merger.add(piece)
    return merger.batches()


def _read_header(piece: np.ndarray) -> tuple[list[str], int, int]:
    """The names of its groups, where its rows begin, and the length of its longest word."""
    magic, size, longest = _HEADER.unpack(piece[: _HEADER.size].tobytes())
    assert magic == _MAGIC, "not packed words"
    first = _HEADER.size + size
    return json.loads(piece[_HEADER.size : first].tobytes()), first, longest
