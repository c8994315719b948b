"""Counting words of documents within a fixed amount of memory."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.words import count_kernels as k
from shardpiece.words import packed
from shardpiece.words import sort_kernels as sort

T = TypeVar("T")

_FIRST_ENTRIES = 1 << 18
_OUT_ROWS = 1 << 16
_OUT_BYTES = 4 << 20


class WordCounter:
    """A hash count that stays below ``memory`` bytes: ``add`` returns what it had to spill, ``drain`` the rest.

    The same word may come out once of every spill; whoever collects adds the counts up. Words longer than
    ``max_word_bytes`` are left out and counted in ``long_words`` and ``long_word_bytes``.
    """

    def __init__(self, memory: int = 256 << 20, max_word_bytes: int = 32_768):
        self.max_word_bytes = max_word_bytes
        # 40 % for the table of entries, 32 bytes each, of which two thirds are in use when it is full, and 20 % to sort
        # them. (While it grows to four times its size, the old one is there too.) A third for the bytes of long words: of
        # that, only what is in use takes memory. The rest is for rows on their way out.
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

    def add(
        self, words: Words, groups: list[str] | None = None, drain: Callable[[], Iterator[T]] | None = None
    ) -> Iterator[pa.RecordBatch | T]:
        """Count the words of a batch; ``groups`` names the group of each document ("" without it). ``drain`` hands out what
        has been counted when there is no room for more: ``self.drain`` unless given."""
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
                yield from (drain or self.drain)()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Hand out everything counted so far as batches (word: binary, group: string, count: int64), sorted by word and
        group, and forget it."""
        names, order = self._sort()
        values = pa.array(names, pa.string())
        for rows in self._take(order, 0, len(order)):
            yield rows.to_batch(values)
        self._clear()

    def drain_packed(self, borders: list[bytes]) -> Iterator[tuple[int, np.ndarray]]:
        """Hand out everything counted so far as (partition, packed words), and forget it. Partition p has the words from
        borders[p - 1] on that are smaller than borders[p]; it comes in as many pieces as it takes, or not at all."""
        names, order = self._sort()
        places = [
            sort.first_not_below(self._entries, order, self._arena, np.frombuffer(border, np.uint8))
            for border in borders
        ]
        for partition, (first, last) in enumerate(pairwise([0, *places, len(order)])):
            for rows in self._take(order, first, last):
                yield partition, packed.pack(rows, names)
        self._clear()

    def _sort(self) -> tuple[list[str], np.ndarray]:
        """The names of the groups by number, and the numbers of the entries in order. Takes 24 bytes an entry while it
        sorts; the table is moved together and cannot be counted into before it is cleared."""
        names = list(self._group_ids)
        ranks = np.empty(len(names), np.int32)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        n = k.compact(self._entries)
        order = np.empty(n, np.uint32)
        sort.sort_entries(
            self._entries, n, self._arena, ranks, np.empty(n, np.uint64), order, np.empty(n, np.uint64),
            np.empty(n, np.uint32), np.empty(257, np.int64), np.empty((n // 12 + 8, sort.STACK_COLUMNS), np.int64),
        )  # fmt: skip
        return names, order

    def _take(self, order: np.ndarray, first: int, last: int) -> Iterator[packed.Rows]:
        """The rows at some places of the order, in pieces of at most _OUT_ROWS rows and _OUT_BYTES bytes (or one word)."""
        usual = np.empty(_OUT_BYTES, np.uint8)
        while first < last:
            words, n = usual, min(_OUT_ROWS, last - first)
            offsets, groups, counts = np.empty(n + 1, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
            end = sort.take_sorted(self._entries, order, first, last, self._arena, offsets, words, groups, counts)
            if end == first:
                words, end = np.empty(self.max_word_bytes, np.uint8), first + 1
                sort.take_sorted(self._entries, order, first, end, self._arena, offsets, words, groups, counts)
            n = end - first
            yield packed.Rows(words[: offsets[n]], offsets[: n + 1], groups[:n], counts[:n])
            first = end

    def _clear(self) -> None:
        self._state[k.STATE_WORDS] = self._state[k.STATE_UNITS] = 0
        self._entries[:] = 0

    def _group_id(self, name: str) -> int:
        return self._group_ids.setdefault(name, len(self._group_ids))


def _empty_entries(n: int) -> np.ndarray:
    """Where no entry lies across two cache lines."""
    raw = np.zeros(4 * n + 8, np.uint64)
    skipped = -raw.ctypes.data % 64 // 8
    return raw[skipped : skipped + 4 * n].reshape(n, 4)
