"""Counting words of documents within a fixed amount of memory."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.words import count_kernels as k

_FIRST_ENTRIES = 1 << 18
_OUT_ROWS = 1 << 16
_OUT_BYTES = 64 << 20


class WordCounter:
    """A hash count that stays below ``memory`` bytes: ``add`` returns what it had to spill, ``drain`` the rest.

    The same word may come out several times; whoever collects adds the counts up. Words longer than
    ``max_word_bytes`` are left out and counted in ``long_words`` and ``long_word_bytes``.
    """

    def __init__(self, memory: int = 256 << 20, max_word_bytes: int = 32_768):
        self.max_word_bytes = max_word_bytes
        # Half for the entries of 32 bytes: while their table grows to four times its size, the old one is there too. A
        # third for the bytes of long words: of that, only what is in use takes memory. The rest is for a batch on its
        # way out.
        sizes = [min(1 << 31, max(2048, memory // 80))]
        while sizes[-1] > _FIRST_ENTRIES:
            sizes.append(sizes[-1] // 4)
        self._larger_sizes = sizes
        self._entries = _empty_entries(sizes.pop())
        units = min(1 << 32, max(memory // 3, max_word_bytes) // k.UNIT + 1)
        self._arena = np.empty(units * k.UNIT, np.uint8)
        self._keys = np.empty((k.BLOCK, 4), np.uint64)
        self._group_ids: dict[str, int] = {}
        self._state = np.zeros(k.STATE_SIZE, np.int64)

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
        data, ends, document_ends = read_only(words.data), read_only(words.ends), read_only(words.document_ends)
        while True:
            status = k.count_words(
                data, ends, document_ends, document_groups, words.start, self.max_word_bytes, self._entries,
                len(self._entries) * 2 // 3, self._arena, self._keys, self._state,
            )  # fmt: skip
            if status == k.ALL_COUNTED:
                return
            if status == k.ENTRIES_FULL and self._larger_sizes:
                larger = _empty_entries(self._larger_sizes.pop())
                k.move_entries(self._entries, larger)
                self._entries = larger
            else:
                yield from self.drain()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Hand out everything counted so far as batches (word: binary, group: string, count: int64) and forget it."""
        names = pa.array(list(self._group_ids), pa.string())
        first = 0
        while True:
            last, rows, size = k.measure(self._entries, first, _OUT_ROWS, _OUT_BYTES)
            if not rows:
                break
            offsets, words = np.empty(rows + 1, np.int32), np.empty(size, np.uint8)
            groups, counts = np.empty(rows, np.int32), np.empty(rows, np.int64)
            k.take(self._entries, first, last, self._arena, offsets, words, groups, counts)
            word = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(words)])
            group = pa.DictionaryArray.from_arrays(pa.array(groups), names).dictionary_decode()
            yield pa.RecordBatch.from_arrays([word, group, pa.array(counts)], names=["word", "group", "count"])
            first = last
        self._state[k.STATE_WORDS] = self._state[k.STATE_UNITS] = 0
        self._entries[:] = 0

    def _group_id(self, name: str) -> int:
        return self._group_ids.setdefault(name, len(self._group_ids))


def _empty_entries(n: int) -> np.ndarray:
    """Where no entry lies across two cache lines."""
    raw = np.zeros(4 * n + 8, np.uint64)
    skipped = -raw.ctypes.data % 64 // 8
    return raw[skipped : skipped + 4 * n].reshape(n, 4)
