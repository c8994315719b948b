"""Parity-aware BPE: merges that serve the group (language) whose text costs most tokens.

Foroutan, Meister, Paul, Niklaus, Ahmadi, Bosselut and Sennrich 2025, "Parity-Aware Byte-Pair Encoding: Improving
Cross-lingual Fairness in Tokenization". Plain BPE merges the pair that is most frequent in the whole corpus, so that
languages with much text get long tokens and the others pay. Here every step looks for the group of the highest *cost*,
its tokens now per unit of its content, and merges the pair that is most frequent in that group, everywhere. Variants
of the paper:

* *hybrid*: the first ``num_global`` merges are those of plain BPE over all groups;
* *moving window*: a group that was taken in more than ``alpha / n_groups`` of the last ``window`` steps is passed over,
  so that a group that cannot be compressed any further does not take the rest of the vocabulary;
* *development text*: the costs are those of another text than the one whose pairs are counted, such as translations of
  the same sentences, with ``units`` of one for every group (or the number of sentences).

Where the authors' program stops, when the chosen group has no pair left, this goes on with the other groups; and costs
are compared as exact fractions.

The machinery is that of ``merge_loop``, whose reasons hold here: a pair's count *in a group* also only falls after its
birth, whatever the order of the merges. Records are therefore kept per pair and group, every group has a heap and a
floor of its own, and when the chosen group has nothing left above its floor, all pairs are counted again and all
floors set anew, each to a 64th of its group's best pair. The global merges are the same loop with everything in one
group. Memory: about 20 bytes for each symbol (a word is there once for each of its groups), and 80 for each pair and
group above the floors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.kernel_cache import read_only
from shardpiece.training import merge_kernels, merge_loop, merge_steps, pair_kernels
from shardpiece.training import parity_kernels as k
from shardpiece.training.memory import available_bytes
from shardpiece.training.merge_loop import MergeProgress, MergeResult
from shardpiece.training.merge_rules import MergeRules
from shardpiece.training.merge_steps import MAX_WORD_SYMBOLS, MergeSteps

TIE_BREAKS = {name: tie for name, tie in merge_loop.TIE_BREAKS.items() if name != "first_seen"}

_FLOOR_DIVISOR = 64
_BYTES_PER_SLOT = 26
_BYTES_PER_TOKEN = 2400
_FIRST_TABLE = 1 << 16
_HEAP_SLACK = 256
_RECORD_SLACK = 65_536

Table = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class ParityResult(MergeResult):
    """``counts``: of the pair in the group that chose it, or in all for a global merge; ``groups``: int32 [m], that
    group, -1 for global and initial merges; ``tokens``, ``units``: int64 [n_groups], each group's final cost as a
    fraction."""

    groups: np.ndarray = None
    tokens: np.ndarray = None
    units: np.ndarray = None

    @property
    def costs(self) -> np.ndarray:
        """float64 [n_groups], tokens per unit."""
        return self.tokens / self.units


def learn_parity_merges(
    data: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    groups: np.ndarray,
    n_groups: int,
    alphabet: Sequence[bytes],
    n_merges: int,
    *,
    symbol_ids: np.ndarray | None = None,
    num_global: int = 0,
    window: int | None = None,
    alpha: float = 2,
    units: np.ndarray | None = None,
    development: Table | None = None,
    tie_break: str = "lexicographic",
    min_frequency: int = 1,
    max_token_length: int | None = None,
    reserved: Sequence[bytes] = (),
    prefix: bytes = b"",
    rules: MergeRules | None = None,
    initial: np.ndarray | None = None,
    unique: bool | None = None,
    progress: Callable[[MergeProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    log: Callable[[str], None] | None = None,
    floor_divisor: int = _FLOOR_DIVISOR,
    arena_factor: float = 1.25,
) -> ParityResult:
    """Learn up to ``n_merges`` merges from words with groups; fewer when no pair is left in any of them.

    ``groups``: int32 [w], the group of each word, below ``n_groups``; a word that several groups use is there once for
    each. The order of the words does not matter. What is not explained here is as for ``learn_merges``.

    ``num_global``: the first so many merges (``initial`` ones among them) are made as by plain BPE. ``window``,
    ``alpha``: see above; None: no such rule. ``units``: int64 [n_groups], positive, what the tokens of each group are divided by; by
    default the bytes of its words. ``development``: (data, starts, counts, groups) of the text that costs are measured
    on, by default the words themselves. Costs are compared exactly; of equals the first group is the worst.
    ``tie_break``: all but "first_seen". ``min_frequency``: a group whose best pair is rarer within the group takes no
    further part. ``initial``: a run continued with the merges of a shorter one ends as the longer one, but not with
    ``window``: which groups chose them is not known, and they have no place in it.

    Raises ConfigError for settings out of range, TrainingError when the table is too large or its groups or symbols
    are not those announced.
    """
    if tie_break not in TIE_BREAKS:
        raise ConfigError(f"tie_break {tie_break!r} is not one of {', '.join(TIE_BREAKS)} (parity-aware BPE)")
    for name, value, least in (
        ("min_frequency", min_frequency, 1),
        ("max_token_length", max_token_length, 1),
        ("num_global", num_global, 0),
        ("window", window, 1),
        ("alpha", alpha, 0),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{name} must be at least {least}, not {value}")
    alphabet = list(alphabet)
    if len(set(alphabet)) < len(alphabet):
        raise ConfigError("two base symbols have the same spelling")
    initial = np.empty((0, 2), np.int32) if initial is None else np.ascontiguousarray(initial, np.int32).reshape(-1, 2)
    if len(initial) > n_merges:
        raise ConfigError(f"there are {len(initial):,} initial merges and only {n_merges:,} are wanted")
    symbol_ids = merge_loop._check_symbols(data, symbol_ids, len(alphabet))
    table = _checked(data, starts, counts, groups, n_groups, alphabet)
    votes = weights = table[2]
    voters = np.bincount(table[3], minlength=n_groups)
    if development is not None:
        merge_loop._check_symbols(development[0], symbol_ids if len(symbol_ids) else None, len(alphabet))
        measured = _checked(*development, n_groups, alphabet)
        votes = np.concatenate([votes, np.zeros_like(measured[2])])
        weights = np.concatenate([np.zeros_like(weights), measured[2]])
        measured = measured[0], measured[1][1:] + table[1][-1], *measured[2:]
        table = tuple(np.concatenate(columns) for columns in zip(table, measured, strict=True))
    data, starts, _, of_word = table
    data, starts = read_only(data), read_only(starts)
    costs = k.Groups(of_word, weights, *(np.zeros(n_groups, np.int64) for _ in range(3)))
    spelled = np.array([len(spelling.removeprefix(prefix)) for spelling in alphabet], np.int64)
    sizes = np.zeros(n_groups, np.int64)
    k.measure(data, starts, symbol_ids, spelled, costs, sizes)
    if units is None:
        if len(missing := np.flatnonzero((sizes == 0) & (voters > 0))):
            raise TrainingError(f"group {missing[0]} has words, but no development text to measure its cost on")
        units = np.maximum(sizes, 1)  # whoever has no words never votes
    units = np.array(units, np.int64)
    if units.shape != (n_groups,) or (n_groups and units.min() < 1):
        raise ConfigError(f"units must be {n_groups} positive numbers, one for each group")

    slots, words = pair_kernels.count_slots(data, starts, symbol_ids)
    _check_memory(slots, words, n_groups, len(alphabet) + n_merges, log)
    if unique is None:
        unique = bool(prefix) or merge_loop._ambiguous(alphabet)
    max_length = min(max_token_length or MAX_WORD_SYMBOLS, MAX_WORD_SYMBOLS)
    steps = _ParitySteps(
        votes, alphabet, n_merges, TIE_BREAKS[tie_break], max_length, reserved, prefix, rules, unique, slots,
        arena_factor,
    )  # fmt: skip
    steps.groups = costs._replace(units=units)
    steps.min_frequency, steps.floor_divisor = min_frequency, floor_divisor
    # A group may be chosen when at most ``cap`` of the choices within the window were its own.
    steps.window = n_merges if window is None else window
    steps.cap = n_merges if window is None else int(Fraction(alpha) * window / max(1, n_groups))
    steps.lay_out(data, starts, symbol_ids)
    at_first = costs.tokens.copy()
    k.add_laid_out(steps.words, steps.slots, steps.groups, -1)
    if not steps.replay(initial, stop):
        costs.tokens[:] = at_first
        return steps.result(False)
    k.add_laid_out(steps.words, steps.slots, steps.groups, 1)
    complete = steps.run(min(num_global, n_merges), None, progress, stop)
    if complete and steps.merges >= min(num_global, n_merges):
        complete = steps.run(n_merges, n_groups, progress, stop)
    return steps.result(complete)


def _checked(data, starts, counts, groups, n_groups, alphabet) -> Table:
    """A table with starts from 0 and all of the dtypes that the kernels take."""
    data, starts = data[int(starts[0]) : int(starts[-1])], np.asarray(starts, np.int64) - starts[0]
    counts, groups = np.ascontiguousarray(counts, np.int64), np.ascontiguousarray(groups, np.int32)
    if len(groups) != len(counts):
        raise TrainingError(f"{len(counts):,} words, but groups of {len(groups):,}")
    if len(counts):
        if int(groups.min()) < 0 or int(groups.max()) >= n_groups:
            raise TrainingError(f"the groups of the words must be 0 to {n_groups - 1}")
        if int(counts.min()) < 1:
            raise TrainingError("word counts must be positive")
        lengths = np.diff(starts)
        if int(lengths.max()) > MAX_WORD_SYMBOLS:
            raise TrainingError(f"a word of more than {MAX_WORD_SYMBOLS} symbols cannot be trained on")
        size = float(np.dot(lengths.astype(np.float64), counts.astype(np.float64))) * max(map(len, alphabet))
        if size >= 2.0**62:
            raise TrainingError("the table's total count times word length exceeds 2^62; scale the counts down")
    return data, starts, counts, groups


def _check_memory(slots: int, words: int, n_groups: int, vocab_size: int, log) -> None:
    if slots > merge_loop._MAX_SLOTS:
        raise TrainingError(f"the table has {slots:,} symbols by group; the merge loop takes {merge_loop._MAX_SLOTS:,}")
    need = slots * _BYTES_PER_SLOT + vocab_size * _BYTES_PER_TOKEN + (64 << 20)
    free = available_bytes()
    if log:
        log(
            f"parity-aware merge loop: {n_groups:,} groups, {words:,} words by group, {slots - words - 1:,} symbols, "
            f"about {need / 1e6:,.0f} MB of memory ({free / 1e6:,.0f} MB available)"
        )
    if need > free:
        raise TrainingError(
            f"parity-aware BPE needs about {need / 1e9:.1f} GB for {slots:,} symbols, and {free / 1e9:.1f} GB are "
            f"available: run the driver on a machine with more memory, or train on fewer distinct words"
        )


class _ParitySteps(MergeSteps):
    """The steps of plain BPE with records, floors and heaps by group."""

    groups: k.Groups
    min_frequency: int
    floor_divisor: int
    window: int
    cap: int

    def __init__(self, counts, alphabet, n_merges, *settings):
        super().__init__(counts, alphabet, n_merges, *settings)
        self.merge_group = np.full(n_merges, -1, np.int32)
        self.born_by_symbol = tuple(np.full(self.base + n_merges, -1, np.int32) for _ in range(2))
        self.born = _born(0)
        self.table_size = _FIRST_TABLE

    def result(self, complete: bool = True) -> ParityResult:
        groups = self.merge_group[: self.merges].copy()
        return ParityResult(
            *self.learned(), complete, groups=groups, tokens=self.groups.tokens.copy(), units=self.groups.units
        )

    def run(self, limit: int, n_groups: int | None, progress, stop) -> bool:
        """Merge until ``limit`` merges are made in all or no pair is left, with ``n_groups`` None as one group; False
        when told to stop."""
        if self.merges >= limit:
            return True
        self.together = n_groups is None
        n = n_groups or 1
        zeros = [np.zeros(size, np.int64) for size in (n, n + 1, n)]
        self.queues = k.Queues(zeros[0], np.zeros(n, np.bool_), *zeros[1:])
        self.index_groups()
        rebuilt_at = -1
        watched = bool(progress or stop)
        while True:
            pause = min(limit, self.merges + merge_steps._MERGES_AT_ONCE) if watched else limit
            self.compacted = False
            reason = k.merge_pairs(
                self.words, self.groups, self.together, self.occurrence, self.records, self.heap, self.queues,
                self.min_frequency, self.window, self.cap, *self.born_by_symbol, self.born, self.tie, self.tokens,
                self.allowed, self.rules, self.merge_key, self.merge_count, self.merge_group, pause,
                merge_steps._WORK if watched else 1 << 62, self.state,
            )  # fmt: skip
            if progress:
                progress(merge_loop._progress(self, len(self.merge_key)))
            if reason == k.EXHAUSTED or self.merges == limit:
                return True
            if stop and stop():
                return False
            need = int(self.state[merge_kernels.STATE_NEED])
            if reason == k.DRAINED:
                self.index_groups()
            elif reason == k.NEED_TOKEN_BYTES:
                self.tokens = self.tokens._replace(data=merge_steps._grown(self.tokens.data, 2 * need))
            elif reason == k.NEED_RECORDS:
                self.records = k.Records(*(merge_steps._grown(array, need + need // 2) for array in self.records))
            elif reason == k.NEED_HEAP:
                self.enlarge_heaps(need)
            elif reason == k.NEED_OCCURRENCES:
                # Indexing again drops the dead occurrences; if that was just done, the arena is too small.
                if rebuilt_at == self.merges:
                    self.occurrence = merge_steps._grown(self.occurrence, need + need // 8)
                else:
                    rebuilt_at = self.merges
                    self.index_groups()

    def index_groups(self) -> None:
        """Compact the words, count the pairs of each group, and set floors, records and heaps."""
        words = self.words
        if not self.compacted:
            single = np.zeros(int(self.state[merge_kernels.STATE_NEXT_ID]), np.int64)
            self.slots = pair_kernels.compact(*words[:3], words.count, self.slots, single, np.empty(0, np.int64))
            self.compacted = True
        while True:
            pairs = _pairs(self.table_size)
            used = k.count_pairs(words, self.slots, self.groups, self.together, pairs)
            if used >= 0:
                break
            self.table_size *= 4
        order = np.argsort(pairs.key[:used], kind="stable")
        pushes = np.empty(len(self.queues.out), np.int64)
        records, total, longest = k.select_pairs(
            order, pairs, self.queues, pushes, self.min_frequency, self.floor_divisor, self.tokens, self.allowed,
            self.rules,
        )  # fmt: skip
        if total > len(self.occurrence):
            self.occurrence = np.empty(total, np.int32)
        if 2 * longest > len(self.born.side):
            self.born = _born(2 * longest)
        room = records + records // 2 + _RECORD_SLACK
        self.records = k.Records(
            *(np.empty(room, dtype) for dtype in (np.int64, np.int32, np.int32, np.int64, np.int64, np.int64))
        )
        k.index_pairs(order, pairs, words.pair_at, self.slots, self.occurrence, self.records)
        self.state[merge_kernels.STATE_RECORDS] = records
        self.state[merge_kernels.STATE_OCCURRENCES] = total
        self.queues.size[:] = 0
        np.cumsum(pushes * 3 // 2 + _HEAP_SLACK, out=self.queues.start[1:])
        self.heap = _heap(int(self.queues.start[-1]))
        k.push_records(1, records, self.records, self.heap, self.queues, self.tie, self.tokens)

    def enlarge_heaps(self, need: int) -> None:
        """Room for ``need`` more entries, and half as many again, in every group's heap."""
        queues = self.queues
        starts = np.zeros_like(queues.start)
        np.cumsum(queues.size * 3 // 2 + need + _HEAP_SLACK, out=starts[1:])
        larger = _heap(int(starts[-1]))
        for g, size in enumerate(queues.size):
            for old, new in zip(self.heap, larger, strict=True):
                new[starts[g] : starts[g] + size] = old[queues.start[g] : queues.start[g] + size]
        self.heap, self.queues = larger, queues._replace(start=starts)


def _pairs(size: int) -> k.Pairs:
    room = size // 2
    dtypes = (np.int64, np.int32, np.int64, np.int32, np.int32)
    return k.Pairs(np.empty(size, np.int32), *(np.empty(room, dtype) for dtype in dtypes))


def _heap(size: int) -> merge_kernels.Heap:
    return merge_kernels.Heap(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int32))


def _born(size: int) -> k.Born:
    dtypes = (np.int32, np.int32, np.int64, *[np.int32] * 5)
    return k.Born(*(np.empty(size, dtype) for dtype in dtypes))
