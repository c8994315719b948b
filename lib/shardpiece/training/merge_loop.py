"""The exact BPE merge loop: weighted words in, merges out.

The algorithm is Sennrich, Haddow and Birch 2016 (Gage 1994): count the adjacent pairs of symbols, weighted by the
count of the word, merge the most frequent one everywhere, left to right, repeat. Base symbols are whatever the caller
makes them: bytes, characters, characters with a marker of word ends or continuations, tokens of an earlier tokenizer.
What is ours is how little the loop touches:

* **A pair number per position** instead of a hash table from pairs to positions (see ``merge_kernels``).
* **A floor that falls.** A pair's count is largest when it is born and only falls afterwards, so with a floor T a pair
  born with a count below T needs no record until T falls under it. When the heap holds nothing of at least T, the
  words are compacted, the pairs recounted and T is lowered: to a 64th, or as far as the merges to come are likely to
  need. Any schedule of floors gives the same merges.
* **No waiting for memory.** Occurrences are known long before they are visited, so their cache lines are asked for in
  advance, and what happens at one has next to no branches.

Why both are sound. Identify a token with its sequence of base symbols, however it is spelled. *Lemma: if a sequence s
becomes one token at a place, this happens in the same step at every place where s ever becomes one token, and by the
same merges.* Proof: no earlier merge crossed the two ends of such a place, since a merged symbol is never split. So
every merge so far found its occurrences inside the place as if the place were alone: the search from left to right was
at the place's start whenever it reached it, for no match crossed it. Hence the symbols inside were, after each step, a
function of s and of the merges made, and these are the same for all places. ∎ So each sequence that becomes a token has
one merge, one id, and all occurrences of a pair (a, b) that ever become adjacent are born in the step that creates the
younger of a and b (both being base symbols: at the start); later steps only destroy them. Nothing was assumed about
which merge a step chooses: the lemma holds for merges given from outside (``initial``), for a bound on the token length,
for rules about the text and for forbidden spellings, as long as a merge happens everywhere or nowhere.

Spellings. Different sequences may be spelled alike when the spellings of base symbols are ambiguous: text that itself
contains the end-of-word marker or the continuing prefix, or tokens of an earlier tokenizer. A vocabulary must not have
a spelling twice, so a merge whose spelling a token, or a ``reserved`` string, already has never happens. The set of
spellings only grows. So a pair that is refused once, when its record would be made or when it reaches the top of the
heap, would be refused in every later step, and forgetting it changes nothing; a pair whose spelling is taken by
another sequence after its record was made is found when it reaches the top, which is the only moment that counts. A
recount in a later epoch finds the pair again and refuses it again. Alphabets in which no spelling begins another
one (bytes, characters) cannot be ambiguous without a prefix, and nothing is checked.

Time and memory follow the number of symbols: about 20 bytes each beside the table.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.kernel_cache import read_only
from shardpiece.training import pair_kernels as pairs
from shardpiece.training import token_kernels
from shardpiece.training.memory import BYTES_PER_SLOT, BYTES_PER_TOKEN, available_bytes, projected_bytes
from shardpiece.training.merge_rules import MergeRules
from shardpiece.training.merge_steps import MAX_WORD_SYMBOLS, MergeSteps

TIE_BREAKS = {
    "lexicographic": token_kernels.TIE_LEXICOGRAPHIC,
    "id": token_kernels.TIE_ID,
    "first_seen": token_kernels.TIE_FIRST_SEEN,
    "lexicographic_last": token_kernels.TIE_LEXICOGRAPHIC_LAST,
    "sentencepiece": token_kernels.TIE_SENTENCEPIECE,
}
MAX_WORD_BYTES = MAX_WORD_SYMBOLS

_FLOOR_DIVISOR = 64
_MAX_SLOTS = 2**31 - 64
_RECORDS_PER_MERGE = 2


@dataclass(frozen=True)
class MergeResult:
    """``merges``: int32 [m, 2], the ids joined by merge i into id n + i (n: size of the alphabet); ``counts``: int64
    [m], how often the pair stood in the table when it was merged, -1 for initial merges; ``complete``: False when the
    training was stopped before its end; ``frequencies``: where asked for and known, int64 [n + m], how often each token
    stands in the words as they are cut in the end."""

    merges: np.ndarray
    counts: np.ndarray
    complete: bool = True
    frequencies: np.ndarray | None = None


@dataclass(frozen=True)
class MergeProgress:
    """Where the training is: ``done`` merges of at most ``total`` (initial ones are among both); the spellings of the
    last merged pair, ``left`` and ``right``, and its ``count`` (None before the first; -1 after initial merges)."""

    done: int
    total: int
    left: bytes | None
    right: bytes | None
    count: int | None
    _learned: Callable[[], tuple[np.ndarray, np.ndarray]] = field(repr=False)

    def result(self) -> MergeResult:
        """The merges so far, a copy; to be asked during the callback, for checkpoints."""
        return MergeResult(*self._learned(), complete=False)


def learn_merges(
    data: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    alphabet: Sequence[bytes],
    n_merges: int,
    *,
    symbol_ids: np.ndarray | None = None,
    tie_break: str = "lexicographic",
    min_frequency: int = 1,
    max_token_length: int | None = None,
    reserved: Sequence[bytes] = (),
    prefix: bytes = b"",
    rules: MergeRules | None = None,
    initial: np.ndarray | None = None,
    unique: bool | None = None,
    frequencies: bool = False,
    progress: Callable[[MergeProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    log: Callable[[str], None] | None = None,
    floor_divisor: int = _FLOOR_DIVISOR,
    arena_factor: float = 1.25,
) -> MergeResult:
    """Learn up to ``n_merges`` merges; fewer when no pair is left.

    ``data``: the words' symbols one after the other, uint8, mapped to base ids by ``symbol_ids`` (int32 [256]; as they
    are without it), or int32 base ids. -1 is a symbol outside the alphabet: no pair contains it or reaches across it.
    ``starts``: int64 [w + 1], where each word begins; ``counts``: int64 [w], positive. Words of more than
    MAX_WORD_SYMBOLS symbols are refused. ``alphabet``: the spelling of each base symbol, all different, for ids 0 to
    n - 1; merge i makes id n + i.

    ``tie_break`` decides between pairs of equal count, by spelling, byte by byte: "lexicographic": the smaller (left,
    right); "lexicographic_last": the larger one (subword-nmt); "id": the smaller (left id, right id) (Hugging Face,
    rustbpe); "first_seen": the pair that stands first in the table as merged so far; "sentencepiece": the pair of fewer
    base symbols, then of the smaller merged spelling, then the smaller (left, right).
    ``min_frequency``: stop when the best pair is rarer. ``max_token_length``: of merged tokens, in base symbols,
    inclusive. ``reserved``: spellings that no merge may have. ``prefix``: a right token that starts with it loses it in
    the spelling of the merge ("##"). ``rules``: see MergeRules.
    ``unique``: whether a merge whose spelling is that of a token is skipped; by default where the alphabet and the
    prefix make it possible.
    ``initial``: int32 [k, 2], merges to apply first, in order, each at most once; whatever the settings would choose.
    They count towards ``n_merges``. A run continued with the merges of a shorter one ends as the longer one.

    ``frequencies``: whether the result is to have them. They are known when there are no initial merges and no symbols
    outside the alphabet.

    ``progress`` is called now and then, ``stop`` likewise: about every second, but not while the pairs of the whole table
    are counted, at the start and two or three times later, which takes some 10 ns a symbol. When it returns true, what
    has been learned is returned with ``complete`` False.
    ``floor_divisor`` and ``arena_factor`` set how fast the floor falls and the room for occurrence lists. They
    change speed and memory, never the result; the divisor is 2 or more.

    Raises ConfigError for settings out of range, TrainingError when the table is too large or its symbols are not in
    the alphabet.
    """
    if tie_break not in TIE_BREAKS:
        raise ConfigError(f"tie_break {tie_break!r} is not one of {', '.join(TIE_BREAKS)}")
    if min_frequency < 1:
        raise ConfigError(f"min_frequency must be at least 1, not {min_frequency}")
    if max_token_length is not None and max_token_length < 1:
        raise ConfigError(f"max_token_length must be at least 1, not {max_token_length}")
    alphabet = list(alphabet)
    if len(set(alphabet)) < len(alphabet):
        raise ConfigError("two base symbols have the same spelling")
    initial = np.empty((0, 2), np.int32) if initial is None else np.ascontiguousarray(initial, np.int32).reshape(-1, 2)
    if len(initial) > n_merges:
        raise ConfigError(f"there are {len(initial):,} initial merges and only {n_merges:,} are wanted")
    data, starts = read_only(np.ascontiguousarray(data)), read_only(np.ascontiguousarray(starts, np.int64))
    symbol_ids = read_only(_check_symbols(data, symbol_ids, len(alphabet) + len(initial)))
    if len(counts) and int(np.diff(starts).max()) > MAX_WORD_SYMBOLS:
        raise TrainingError(f"a word of more than {MAX_WORD_SYMBOLS} symbols cannot be trained on")
    if len(counts) and int(counts.min()) < 1:
        raise TrainingError("word counts must be positive")
    weight = float((np.diff(starts) * counts.astype(np.float64)).sum())
    if weight >= 2.0**62:
        raise TrainingError("the table's total count times word length exceeds 2^62; scale the counts down")

    slots, words = pairs.count_slots(data, starts, symbol_ids)
    _check_memory(slots, words, len(alphabet) + n_merges, log)
    if unique is None:
        unique = bool(prefix) or _ambiguous(alphabet)
    max_length = min(max_token_length or MAX_WORD_SYMBOLS, MAX_WORD_SYMBOLS)
    steps = MergeSteps(
        counts, alphabet, n_merges, TIE_BREAKS[tie_break], max_length, reserved, prefix, rules, unique, slots,
        arena_factor,
    )  # fmt: skip
    steps.lay_out(data, starts, symbol_ids)
    if not steps.replay(initial, stop):
        return MergeResult(*steps.learned(), complete=False)
    report = progress and (lambda: progress(_progress(steps, n_merges)))
    floor = None
    while steps.merges < n_merges:
        if stop and stop():
            return MergeResult(*steps.learned(), complete=False)
        least = min_frequency if floor is None else max(min_frequency, floor // floor_divisor)
        largest = steps.count(least)
        # Records for some more pairs than there are merges to come are enough (pairs of the newly made tokens come on
        # top); if they are not, there is one more epoch.
        if floor is None:
            floor = max(min_frequency, largest // floor_divisor)
        else:
            few = steps.floor_of_rank(_RECORDS_PER_MERGE * (n_merges - steps.merges))
            floor = max(least, min(few, floor // 2))
        if steps.index(floor) and not steps.merge(floor, n_merges, report, stop):
            return MergeResult(*steps.learned(), complete=False)
        if floor == min_frequency:
            break
    final = _frequencies(steps, data, starts, counts, symbol_ids) if frequencies and not len(initial) else None
    return MergeResult(*steps.learned(), frequencies=final)


def _frequencies(steps: MergeSteps, data, starts, counts, symbol_ids) -> np.ndarray | None:
    if int((symbol_ids if len(symbol_ids) else data).min(initial=0)) < 0:
        return None
    found = steps.frequencies()
    # Words of one symbol are not laid out.
    alone = np.flatnonzero(np.diff(starts) == 1)
    symbols = data[starts[alone]]
    np.add.at(found, symbol_ids[symbols] if len(symbol_ids) else symbols, counts[alone])
    return found


def _progress(steps: MergeSteps, total: int) -> MergeProgress:
    if steps.merges == 0:
        return MergeProgress(0, total, None, None, None, steps.learned)
    key = int(steps.merge_key[steps.merges - 1])
    left, right = steps.spelling(key >> 32), steps.spelling(key & 0xFFFFFFFF)
    return MergeProgress(steps.merges, total, left, right, int(steps.merge_count[steps.merges - 1]), steps.learned)


def _check_symbols(data: np.ndarray, symbol_ids: np.ndarray | None, size: int) -> np.ndarray:
    """The map of the symbols, empty where ``data`` has base ids already."""
    if data.dtype == np.int32 and symbol_ids is None:
        if len(data) and (int(data.min()) < -1 or int(data.max()) >= size):
            raise TrainingError(f"the words have symbols outside the alphabet of {size:,}")
        return np.empty(0, np.int32)
    if data.dtype != np.uint8:
        raise ConfigError(f"data is {data.dtype}: uint8, or int32 without symbol_ids, is needed")
    if symbol_ids is None:
        symbol_ids = np.arange(256)
        symbol_ids[size:] = -1
    symbol_ids = np.ascontiguousarray(symbol_ids, np.int32)
    if len(symbol_ids) != 256 or int(symbol_ids.max()) >= size:
        raise ConfigError(f"symbol_ids must map the 256 bytes into the alphabet of {size:,}")
    return symbol_ids


def _check_memory(slots: int, words: int, vocab_size: int, log) -> None:
    if slots > _MAX_SLOTS:
        raise TrainingError(
            f"the table has {slots:,} symbols after counting; the merge loop takes {_MAX_SLOTS:,}. "
            f"Reduce the table while training (train.cut: {{}}), or train on fewer distinct words."
        )
    need = projected_bytes(slots, vocab_size)
    free = available_bytes()
    if log:
        log(
            f"merge loop: {words:,} words, {slots - words - 1:,} symbols, about {need / 1e6:,.0f} MB of memory: "
            f"{BYTES_PER_SLOT} bytes a symbol, {BYTES_PER_TOKEN:,} a token ({free / 1e6:,.0f} MB available)"
        )
    if need > free:
        raise TrainingError(
            f"the merge loop needs about {need / 1e9:.1f} GB for {slots:,} symbols, and {free / 1e9:.1f} GB are "
            f"available: run the driver on a machine with more memory, reduce the table (train.cut: {{}}, or {{where: spark}}), "
            f"or train on fewer distinct words"
        )


def _ambiguous(alphabet: list[bytes]) -> bool:
    """Whether a spelling is the beginning of another one: only then can two sequences be spelled alike."""
    ordered = sorted(alphabet)
    return any(b.startswith(a) for a, b in itertools.pairwise(ordered))
