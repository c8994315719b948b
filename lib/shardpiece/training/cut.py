"""Exact reduction of word tables: cut and deduplicate, and BPE training that never indexes the whole table.

**The reduction.** Choose a floor T. In any state of training, cut every word between adjacent symbols whose pair has a
total count below T, drop pieces of one symbol, add up equal pieces.

*Claim: as long as the merges of the whole table have counts of at least T, the merges of the reduced table, their counts
and the choices between ties are the same; and the reduced table shows where this ends: it has a pair of at least T exactly
when the whole table has.*

Proof. Let q = (x, y) be a pair of tokens at any later time, and look at one of its occurrences. A merged symbol is never
split, so at the time of the cut there was a border between two symbols where x and y meet, and no merge has crossed the
ends of x and of y since the beginning. By the lemma of ``merge_loop`` the symbols inside such a place are a function of
the token alone: at the time of the cut *every* occurrence of q had, where x and y meet, the same pair g (last symbol
inside x, first symbol inside y). Different occurrences of q have different borders, so count(q) <= count(g then). Hence

1. if g was cut, g had less than T, and q never reaches T: no merge of at least T crosses a cut;
2. if g was not cut, none of q's occurrences is across a cut: all of them are in pieces, q's count there is exact.

Now induction over the merges. While none has crossed a cut, the words are their pieces side by side: a merge finds the
same occurrences, also in runs such as ``aaaa``, where all borders between equal symbols are cut or none (g is the same for
all). Equal pieces stay equal, so one of them with the sum of their counts stands for all; a piece of one symbol has no
pairs. By 1 and 2 the pairs of at least T, and their counts, are the same in both tables: so is the largest one, and by
whatever rule ties are broken that looks at the pair alone (not at its place: "first_seen" is refused). ∎

Nothing was assumed about why a merge was chosen or refused, so it holds for merges given from outside, for bounds on the
length, rules and reserved spellings; a refused pair may be frequent, it just is not cut.

**The certificate** is one comparison: all counts of merges are at least T, and since they never rise, the last one is.

**Training.** The floor falls in epochs: T = largest count / 32, reduce, merge all pairs of at least T in the reduced table,
apply these merges to the whole one, T = T / 8, and so on. A high floor leaves short pieces of frequent pairs, of which few
are distinct; a low one comes when the merges before have made the words short. So the reduced tables stay small (on 34 M
symbols of 480 languages and code never more than 10 % of the table), the merge loop's indices with them, and the whole
table is only ever read from front to back, in 4 bytes per symbol, or on executors (``pipeline.reduce``). When the merges
that a floor proves are not enough, nothing has to be taken back: the next epoch goes on from them at a lower floor.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import isqrt
from typing import Any, Protocol

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training import cut_kernels as k
from shardpiece.training.cut_tables import (
    ALL_PAIRS,
    MergeTable,
    PairTable,
    PieceTable,
    Sequences,
    lay_out,
    pair_counts,
    pair_set,
)
from shardpiece.training.memory import available_bytes
from shardpiece.training.merge_loop import MAX_WORD_SYMBOLS, MergeProgress, MergeResult, learn_merges

_FIRST_DIVISOR = 32
_DIVISOR = 8
_NO_WORDS = Sequences(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int64))
_CHUNK_SYMBOLS = 1 << 22
# Of the memory there is, the share that a reduced table may make the merge loop take, at 20 bytes for each symbol.
_BYTES_PER_SYMBOL = 20 + 12
_SHARE = 0.5


@dataclass(frozen=True)
class Epoch:
    """One reduction: the ``floor``, the size of the table as merged so far (``words`` of two symbols or more and their
    ``symbols``), that of the reduced one, and the number of ``merges`` proven when it was used up."""

    floor: int
    words: int
    symbols: int
    pieces: int
    piece_symbols: int
    merges: int


@dataclass(frozen=True)
class Certificate:
    """Why merges learned from reduced tables are those of the whole table. ``floor``: of the last cut; ``last_count``: of
    the last merge (None without merges); ``holds``: last_count >= floor, or there is no merge. ``redone``: floors of the
    user's choice, or below, that proved fewer merges than wanted, so that a lower one followed. ``epochs``: all cuts."""

    floor: int
    last_count: int | None
    holds: bool
    redone: tuple[int, ...]
    epochs: tuple[Epoch, ...]

    def to_json(self) -> dict:
        return asdict(self)


class Source(Protocol):
    """A whole table, wherever it is, as merged so far."""

    def size(self) -> tuple[int, int]:
        """Words of two symbols or more, and their symbols."""

    def pairs(self, floor: int) -> tuple[np.ndarray, np.ndarray]:
        """The adjacent pairs of at least ``floor`` (int64, left << 32 | right, ascending) and their counts (int64)."""

    def cut(self, kept: np.ndarray, limit: int) -> Sequences | None:
        """The words cut between symbols whose pair is not in ``kept``, equal pieces added up, in lexicographic order; None
        when they have more than ``limit`` symbols."""

    def apply(self, merges: np.ndarray, first_id: int) -> None:
        """Apply merges (int32 [m, 2]); the first one makes ``first_id``."""


def cut_and_deduplicate(symbols: np.ndarray, starts: np.ndarray, counts: np.ndarray, floor: int) -> Sequences:
    """Cut words (arrays as in ``Sequences``) between adjacent symbols whose pair has a total count below ``floor`` or that
    a border separates; drop pieces of one symbol; add up equal ones. The pieces come in the lexicographic order of their
    symbols, whatever the order of the words. The input stays as it is; beside it this takes 8 to 16 bytes for each symbol
    of the result, 40 for each piece, and 16 to 64 for each distinct pair of symbols that reach the floor."""
    words = Sequences(symbols, starts, counts)
    pairs, _ = pair_counts(words, int(symbols.max(initial=-1)) + 1, floor)
    table = PieceTable()
    table.add(words, pair_set(pairs))
    return table.result()


def learn_merges_cut(
    data: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    alphabet: Sequence[bytes],
    n_merges: int,
    *,
    floor: int | None = None,
    symbol_ids: np.ndarray | None = None,
    threads: int = 1,
    **settings,
) -> tuple[MergeResult, Certificate]:
    """What ``learn_merges`` returns for the same arguments, from reduced tables, and why it is the same.

    ``floor``: the lowest floor to try before it must be known to be too high; by default the schedule decides. It changes
    time and memory alone, as do the ``threads``, which go through the whole table. ``settings``: those of ``learn_merges``,
    and of ``learn_by_cutting``.
    Takes 4 bytes for each symbol and 16 for each word beside the given arrays, and the merge loop's 20 for each symbol of
    the largest reduced table. Raises as ``learn_merges``, and ConfigError for the tie break "first_seen".
    """
    words = _Words(data, starts, counts, alphabet, symbol_ids, threads)
    return learn_by_cutting(words, alphabet, n_merges, floor=floor, **settings)


def learn_by_cutting(
    source: Source,
    alphabet: Sequence[bytes],
    n_merges: int,
    *,
    floor: int | None = None,
    max_symbols: int | None = None,
    tie_break: str = "lexicographic",
    min_frequency: int = 1,
    initial: np.ndarray | None = None,
    log: Callable[[str], None] | None = None,
    progress: Callable[[MergeProgress], None] | None = None,
    **settings,
) -> tuple[MergeResult, Certificate]:
    """Train on reductions of ``source`` under falling floors. ``max_symbols``: a reduced table of more is cut again at a
    higher floor, as long as there is one; by default what memory allows."""
    if tie_break == "first_seen":
        raise ConfigError("tie_break first_seen depends on the order of the words, which cut and deduplicate gives up")
    if floor is not None and floor < 1:
        raise ConfigError(f"floor must be at least 1, not {floor}")

    def learn(pieces: Sequences, merges: np.ndarray, least: int) -> MergeResult:
        return learn_merges(
            *pieces, alphabet, n_merges, initial=merges, min_frequency=least, tie_break=tie_break, progress=progress,
            **settings,
        )  # fmt: skip

    initial = np.empty((0, 2), np.int32) if initial is None else np.ascontiguousarray(initial, np.int32).reshape(-1, 2)
    result = learn(_NO_WORDS, initial, min_frequency)  # checks the settings
    if len(initial):
        source.apply(initial, len(alphabet))
    epochs: list[Epoch] = []
    redone: list[int] = []
    current, limit = min_frequency, max_symbols
    if len(initial) < n_merges:
        pairs, totals = source.pairs(1)
        above = int(totals.max(initial=0)) + 1
        current = max(min_frequency, floor or 1, above // _FIRST_DIVISOR)
    while len(result.merges) < n_merges and result.complete:
        if max_symbols is None:
            limit = int(available_bytes() * _SHARE) // _BYTES_PER_SYMBOL
        pieces = source.cut(pairs[totals >= current], limit)
        while pieces is None:
            # Between this floor and the one before, which did fit.
            higher = max(current + 1, isqrt(current * above))
            if higher >= above:
                higher, limit = current, 1 << 62
            current = higher
            pieces = source.cut(pairs[totals >= current], limit)
        before, counts = len(result.merges), result.counts
        result = learn(pieces, result.merges, current)
        result = replace(result, counts=np.concatenate([counts, result.counts[before:]]))
        epochs.append(Epoch(current, *source.size(), len(pieces.counts), len(pieces.symbols), len(result.merges)))
        if log:
            log(
                f"cut at {current:,}: {epochs[-1].symbols:,} symbols became {len(pieces.symbols):,} in "
                f"{len(pieces.counts):,} pieces, {len(result.merges) - before:,} merges"
            )
        del pieces
        if len(result.merges) == n_merges or current <= min_frequency or not result.complete:
            break
        if floor is not None and current <= floor:
            redone.append(current)
        source.apply(result.merges[before:], len(alphabet) + before)
        above = current
        current = max(min_frequency, current // _DIVISOR)
        if floor is not None and floor < above:
            current = max(current, floor)
        pairs, totals = source.pairs(current)
    learned = result.counts[len(initial) :]
    last = int(learned[-1]) if len(learned) else None
    return result, Certificate(current, last, last is None or last >= current, tuple(redone), tuple(epochs))


class _Words:
    """A whole table in this process, in chunks that threads share out."""

    def __init__(self, data, starts, counts, alphabet, symbol_ids, threads):
        if len(counts) and int(counts.min()) < 1:
            raise TrainingError("word counts must be positive")
        lengths = np.diff(starts)
        if len(counts) and int(lengths.max()) > MAX_WORD_SYMBOLS:
            raise TrainingError(f"a word of more than {MAX_WORD_SYMBOLS} symbols cannot be trained on")
        if len(counts) and float(np.dot(lengths.astype(np.float64), counts.astype(np.float64))) >= 2.0**62:
            raise TrainingError("the table's total count times word length exceeds 2^62; scale the counts down")
        borders = np.searchsorted(starts, np.arange(starts[0], starts[-1], _CHUNK_SYMBOLS))
        borders = [*np.unique(borders).tolist(), len(counts)]
        self._chunks = [lay_out(data, starts[a : b + 1], counts[a:b], symbol_ids) for a, b in pairwise(borders)]
        if any(int(chunk.symbols.max(initial=-1)) >= len(alphabet) for chunk in self._chunks):
            raise TrainingError(f"the words have symbols outside the alphabet of {len(alphabet):,}")
        self._n_ids = len(alphabet)
        self._threads = max(1, min(threads, len(self._chunks)))

    def size(self) -> tuple[int, int]:
        return sum(len(chunk.counts) for chunk in self._chunks), sum(len(chunk.symbols) for chunk in self._chunks)

    def pairs(self, floor: int) -> tuple[np.ndarray, np.ndarray]:
        single = sum(self._shared_out(self._count_symbols))

        def count(chunks: list[Sequences]) -> PairTable:
            table = PairTable()
            for chunk in chunks:
                table.add(chunk, single, floor)
            return table

        first, *others = self._shared_out(count)
        for table in others:
            first.add_table(table)
        return first.result(floor)

    def cut(self, kept: np.ndarray, limit: int) -> Sequences | None:
        kept = pair_set(kept)

        def cut(chunks: list[Sequences]) -> PieceTable | None:
            table = PieceTable()
            return table if all(table.add(chunk, kept, limit) for chunk in chunks) else None

        first, *others = self._shared_out(cut)
        if first is None or not all(table and first.add(table.pieces(), ALL_PAIRS, limit) for table in others):
            return None
        return first.result()

    def apply(self, merges: np.ndarray, first_id: int) -> None:
        table = MergeTable(merges, first_id)

        def merge(chunks: list[Sequences]) -> list[Sequences]:
            return [table.apply(chunk) for chunk in chunks]

        self._chunks = [chunk for chunks in self._shared_out(merge) for chunk in chunks]
        self._n_ids = first_id + len(merges)

    def _count_symbols(self, chunks: list[Sequences]) -> np.ndarray:
        single = np.zeros(self._n_ids, np.int64)
        for chunk in chunks:
            k.add_symbol_counts(*chunk, single)
        return single

    def _shared_out(self, work: Callable[[list[Sequences]], Any]) -> list:
        """What ``work`` makes of each thread's chunks. Only sums over all chunks may be made of them."""
        shares = [self._chunks[i :: self._threads] for i in range(self._threads)]
        if self._threads == 1:
            return [work(shares[0])]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(work, shares))
