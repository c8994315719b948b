"""Counting words of documents within a fixed amount of memory."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from shardpiece.text.documents import Words
from shardpiece.words import count_kernels as k

_FIRST_WORDS = 1 << 15
_OUT_ROWS = 1 << 16
_OUT_BYTES = 64 << 20


class WordCounter:
    """A hash count that stays below ``memory`` bytes: ``add`` returns what it had to spill, ``drain`` the rest.

    The same word may come out several times; whoever collects adds the counts up. Words longer than
    ``max_word_bytes`` are left out and counted in ``long_words`` and ``long_word_bytes``.
    """

    def __init__(self, memory: int = 256 << 20, max_word_bytes: int = 32_768):
        self.max_word_bytes = max_word_bytes
        # A third for the table (40 bytes a word: slots, hash, start, count, group), a third for the words' bytes: while
        # an array doubles, the old one is there too.
        self._most_words = max(1024, min(1 << 31, memory // 120))
        self._most_bytes = max(memory // 3, max_word_bytes)
        self._group_ids: dict[str, int] = {}
        self._state = np.zeros(k.STATE_SIZE, np.int64)
        self._allocate(min(_FIRST_WORDS, self._most_words), min(1 << 20, self._most_bytes))

    @property
    def long_words(self) -> int:
        return int(self._state[k.STATE_LONG_WORDS])

    @property
    def long_word_bytes(self) -> int:
        return int(self._state[k.STATE_LONG_BYTES])

    def add(self, words: Words, groups: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Count the words of a batch; ``groups`` names the group of each document ("" without it)."""
        if not self._state[k.STATE_WORDS]:
            self._group_ids.clear()
        if groups is None:
            document_groups = np.full(len(words.document_ends), self._group_id(""), np.int32)
        else:
            document_groups = np.fromiter((self._group_id(g) for g in groups), np.int32, len(words.document_ends))
        self._state[k.STATE_NEXT] = 0
        if not len(words.ends):
            return
        while not k.count_words(
            words.data, words.ends, words.document_ends, document_groups, words.start,
            self.max_word_bytes, self._slots, self._arena, self._starts, self._hashes, self._groups, self._counts,
            self._state,
        ):  # fmt: skip
            if not self._grow():
                yield from self.drain()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Hand out everything counted so far as batches (word: binary, group: string, count: int64) and forget it."""
        n = int(self._state[k.STATE_WORDS])
        names = pa.array(list(self._group_ids), pa.string())
        first = 0
        while first < n:
            last = min(n, first + _OUT_ROWS)
            while last > first + 1 and self._starts[last] - self._starts[first] > _OUT_BYTES:
                last = first + (last - first) // 2
            base = self._starts[first]
            offsets = (self._starts[first : last + 1] - base).astype(np.int32)
            arena = self._arena[base : self._starts[last]].copy()
            word = pa.Array.from_buffers(pa.binary(), last - first, [None, pa.py_buffer(offsets), pa.py_buffer(arena)])
            group = pa.DictionaryArray.from_arrays(
                pa.array(self._groups[first:last], pa.int32()), names
            ).dictionary_decode()
            count = pa.array(self._counts[first:last].copy(), pa.int64())
            yield pa.RecordBatch.from_arrays([word, group, count], names=["word", "group", "count"])
            first = last
        self._state[k.STATE_WORDS] = 0
        self._slots[:] = 0

    def _group_id(self, name: str) -> int:
        return self._group_ids.setdefault(name, len(self._group_ids))

    def _allocate(self, words: int, size: int) -> None:
        self._slots = np.zeros(1 << (words * 3 // 2).bit_length(), np.uint64)
        self._arena = np.empty(size, np.uint8)
        self._starts = np.zeros(words + 1, np.int64)
        self._hashes = np.empty(words, np.uint64)
        self._groups = np.empty(words, np.int32)
        self._counts = np.empty(words, np.int64)

    def _grow(self) -> bool:
        """Double what is full, within the bounds; False when nothing can grow."""
        words, size = len(self._counts), len(self._arena)
        used = int(self._state[k.STATE_WORDS])
        if used >= words:
            larger = min(words * 2, self._most_words), size
        else:
            larger = words, min(max(size * 2, self._starts[used] + self.max_word_bytes), self._most_bytes)
        if larger == (words, size):
            return False
        old = self._arena, self._starts, self._hashes, self._groups, self._counts
        slots = len(self._slots)
        self._allocate(*larger)
        new = self._arena, self._starts, self._hashes, self._groups, self._counts
        lengths = int(old[1][used]), used + 1, used, used, used
        for target, source, n in zip(new, old, lengths, strict=True):
            target[:n] = source[:n]
        if len(self._slots) != slots or used:
            k.fill_slots(self._slots, self._hashes, used)
        return True
