"""Words as sequences of symbols, and the tables that are made of them: pairs, pieces, merges (``cut`` says what for)."""

from typing import NamedTuple

import numpy as np

from shardpiece.kernel_cache import read_only
from shardpiece.tokenizer.bpe_tables import pair_table
from shardpiece.training import cut_kernels as k

_FIRST_PAIRS = 1 << 16
_FIRST_PIECES = 1 << 16


class Sequences(NamedTuple):
    """Words as symbols. ``symbols``: int32, all words one after the other, -1 a border inside a word; ``starts``: int64
    [w + 1], word w is symbols[starts[w]:starts[w + 1]]; ``counts``: int64 [w], positive."""

    symbols: np.ndarray
    starts: np.ndarray
    counts: np.ndarray


ALL_PAIRS = np.empty(0, np.int64)


def lay_out(data: np.ndarray, starts: np.ndarray, counts: np.ndarray, symbol_ids: np.ndarray | None) -> Sequences:
    """Words (arrays as ``learn_merges`` takes them) without borders: what lies between them as a word of its own, parts of
    one symbol left out. New arrays."""
    ids = np.empty(0, np.int32)
    if data.dtype == np.uint8:
        ids = np.ascontiguousarray(np.arange(256) if symbol_ids is None else symbol_ids, np.int32)
    # One kind of input for the kernels to be compiled for.
    data, starts, counts = read_only(data), read_only(starts), read_only(counts)
    parts, size = k.count_parts(data, starts, ids)
    words = Sequences(np.empty(size + 1, np.int32), np.empty(parts + 1, np.int64), np.empty(parts, np.int64))
    k.layout_words(data, starts, counts, ids, *words)
    return words._replace(symbols=_shrunk(words.symbols, size))


def pair_counts(words: Sequences, n_ids: int, floor: int) -> tuple[np.ndarray, np.ndarray]:
    """The adjacent pairs of at least ``floor`` (int64, ascending) and their counts. Symbols are less than ``n_ids``."""
    single = np.zeros(n_ids, np.int64)
    k.add_symbol_counts(*words, single)
    table = PairTable()
    table.add(words, single, floor)
    return table.result(floor)


class PairTable:
    """Adjacent pairs of symbols and their counts."""

    def __init__(self):
        self._keys, self._totals = np.full(_FIRST_PAIRS, -1, np.int64), np.zeros(_FIRST_PAIRS, np.int64)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def add(self, words: Sequences, single: np.ndarray, floor: int) -> None:
        """Add the pairs of words, but those of a symbol that ``single`` (int64, by symbol) counts less than ``floor``
        times."""
        word = 0
        while True:
            word, self._used = k.add_pair_counts(*words, word, single, floor, self._keys, self._totals, self._used)
            if word == len(words.counts):
                return
            self._grow()

    def add_table(self, other: "PairTable") -> None:
        """Add all pairs of another table."""
        while self._used + other._used > len(self._keys) * 3 // 4:
            self._grow()
        self._used += k.add_table(other._keys, other._totals, self._keys, self._totals)

    def _grow(self) -> None:
        keys, totals = self._keys, self._totals
        self._keys, self._totals = np.full(2 * len(keys), -1, np.int64), np.zeros(2 * len(keys), np.int64)
        k.add_table(keys, totals, self._keys, self._totals)

    def result(self, floor: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of at least ``floor``, ascending, and their counts, both int64."""
        found = np.flatnonzero((self._keys >= 0) & (self._totals >= floor))
        order = found[np.argsort(self._keys[found])]
        return self._keys[order], self._totals[order]


def pair_set(pairs: np.ndarray) -> np.ndarray:
    """The pair set of the kernels, which is never the empty array that stands for all pairs."""
    keys = np.full(1 << (2 * len(pairs) + 1).bit_length(), -1, np.int64)
    k.fill_set(pairs, keys)
    return keys


class MergeTable:
    """Merges, int32 [m, 2], ready to be applied; merge i makes the id ``first_id`` + i."""

    def __init__(self, merges: np.ndarray, first_id: int):
        left, right = np.ascontiguousarray(merges.T)
        self._merged = np.arange(first_id, first_id + len(merges), dtype=np.int32)
        self._pairs = pair_table(left, right, self._merged)

    def apply(self, words: Sequences) -> Sequences:
        """The words after the merges; those of one symbol are gone. The arrays are changed and cut to size."""
        n_words, n_symbols = k.merge_words(*words, self._pairs, self._merged)
        return Sequences(*(_shrunk(a, n) for a, n in zip(words, (n_symbols, n_words + 1, n_words), strict=True)))


class PieceTable:
    """Distinct pieces of words and how often each was met."""

    def __init__(self):
        self._arena = np.empty(4 * _FIRST_PIECES, np.int32)
        self._starts = np.zeros(_FIRST_PIECES + 1, np.int64)
        self._counts = np.empty(_FIRST_PIECES, np.int64)
        self._slots = np.zeros(2 * _FIRST_PIECES, np.int64)
        self._state = np.zeros(k.STATE_SIZE, np.int64)

    @property
    def symbols(self) -> int:
        """Of the distinct pieces."""
        return int(self._state[k.STATE_SYMBOLS])

    def add(self, words: Sequences, kept: np.ndarray, limit: int = 1 << 62) -> bool:
        """Cut words at the pairs that are not in ``kept`` (of ``pair_set``) and add their pieces; False as soon as the
        table has more than ``limit`` symbols."""
        word = 0
        while True:
            word = k.add_pieces(*words, word, kept, self._arena, self._starts, self._counts, self._slots, self._state)
            if self.symbols > limit:
                return False
            if word == len(words.counts):
                return True
            self._grow(int(words.starts[word + 1] - words.starts[word]))

    def result(self) -> Sequences:
        """The pieces in lexicographic order."""
        return in_order(self.pieces())

    def pieces(self) -> Sequences:
        """The pieces in the order they were met in; views."""
        n = int(self._state[k.STATE_PIECES])
        return Sequences(self._arena[: self.symbols], self._starts[: n + 1], self._counts[:n])

    def _grow(self, length: int) -> None:
        """Make room for a word of ``length`` symbols."""
        n = int(self._state[k.STATE_PIECES])
        if self.symbols + length > len(self._arena):
            self._arena.resize(self.symbols + length + len(self._arena) // 2, refcheck=False)
        while n + length // 2 > len(self._counts):
            self._counts.resize(2 * len(self._counts), refcheck=False)
            self._starts.resize(len(self._counts) + 1, refcheck=False)
        if len(self._slots) < 2 * len(self._counts):
            self._slots = np.zeros(2 * len(self._counts), np.int64)
            k.index_pieces(self._arena, self._starts, n, self._slots)


def in_order(pieces: Sequences) -> Sequences:
    """Words sorted by their symbols, copied."""
    n = len(pieces.counts)
    order = np.arange(n, dtype=np.int32)
    k.sort_pieces(pieces.symbols, pieces.starts, order)
    result = Sequences(np.empty(len(pieces.symbols), np.int32), np.empty(n + 1, np.int64), np.empty(n, np.int64))
    k.gather_pieces(*pieces, order, *result)
    return result


def _shrunk(array: np.ndarray, size: int) -> np.ndarray:
    """The first elements of an array that nobody else holds; the rest of its memory goes back."""
    array.resize(size, refcheck=False)
    return array
