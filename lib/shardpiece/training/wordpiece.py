"""Training WordPiece vocabularies from words as base symbols.

Two criteria go by the name. *Likelihood* (Schuster and Nakajima 2012, as described by Devlin et al. 2019 and most
textbooks): merge the pair that raises the likelihood of the training text under a model of independent pieces most for
each of its occurrences, the one with the largest count(ab) / (count(a) · count(b)), counts being those of the present
segmentation. *Frequency*: merge the most frequent pair; this is what Hugging Face's WordPieceTrainer does, which is its
BPE trainer with a prefix.

The likelihood loop differs from BPE's (``merge_loop``, whose lemma holds: it assumes nothing about which merge a step
chooses) in that a merge changes the score of every pair that shares a symbol with it: the counts of its two symbols
fall, so these scores rise. The pairs of each symbol are chained, and after a merge the chains of both symbols are put in
order again in an indexed heap. That is less work than it seems: as a pair is no more frequent than either of its symbols,
a score of at least t means that both symbols occur 1/t times at most. Common symbols, the ones with long chains, come up
last. Scores are compared exactly, as products of three 64-bit counts; float64 settles those that are far apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training import pair_kernels as pairs
from shardpiece.training import wordpiece_kernels as k
from shardpiece.training.alphabet import CharacterSymbols
from shardpiece.training.merge_kernels import Records
from shardpiece.training.merge_loop import MergeProgress, _check_memory, _check_symbols, _progress, learn_merges
from shardpiece.training.merge_rules import MergeRules
from shardpiece.training.merge_steps import MAX_WORD_SYMBOLS, MergeSteps, _grown
from shardpiece.training.token_kernels import TIE_LEXICOGRAPHIC

CRITERIA = ("likelihood", "frequency")

_WORK = 4 << 20
_MERGES_AT_ONCE = 512


@dataclass(frozen=True)
class WordPieceResult:
    """``vocab``: the pieces in order of their ids, the alphabet first; ``merges``: int32 [m, 2], the ids joined by merge i
    into the i-th piece after the alphabet; ``counts``: int64 [m], how often the pair stood in the table when it was merged;
    ``scores``: float64 [m], by which it was chosen (frequency: the counts); ``complete``: False when the training was
    stopped before its end."""

    vocab: list[bytes]
    merges: np.ndarray
    counts: np.ndarray
    scores: np.ndarray
    complete: bool = True


def learn_wordpiece(
    symbols: CharacterSymbols,
    n_tokens: int,
    *,
    criterion: str = "likelihood",
    min_frequency: int | None = None,
    prefix: bytes = b"##",
    max_token_length: int | None = None,
    reserved: Sequence[bytes] = (),
    rules: MergeRules | None = None,
    progress: Callable[[MergeProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    log: Callable[[str], None] | None = None,
) -> WordPieceResult:
    """Learn a vocabulary of ``n_tokens`` pieces, the alphabet among them. When no pair is left it has fewer, and ``log``
    is told.

    ``symbols``: the words, made with the same ``prefix``. ``criterion``: "likelihood" (at equal scores the larger
    count(ab), then the smaller (left, right) by spelling) or "frequency" (at equal counts the smaller (left id, right id),
    as Hugging Face). ``max_token_length``: in characters, inclusive. ``reserved``: spellings that no piece may have.
    ``rules``, ``progress`` and ``stop``: as in learn_merges.

    ``min_frequency``: pairs that are rarer are not merged. The likelihood criterion depends on it: n occurrences of two
    symbols that occur together only have the score 1/n, so the rarest pairs that are admitted come first, and a low bound
    makes a vocabulary of the corpus's rarest words. By default the bound falls: only pairs of at least 2^k occurrences are
    admitted while there are any, then those of 2^(k-1), down to 1.

    Raises ConfigError for settings out of range and for an alphabet that does not fit, TrainingError when the table is too
    large.
    """
    if criterion not in CRITERIA:
        raise ConfigError(f"criterion {criterion!r} is not one of {', '.join(CRITERIA)}")
    if min_frequency is not None and min_frequency < 1:
        raise ConfigError(f"min_frequency must be at least 1, not {min_frequency}")
    if max_token_length is not None and max_token_length < 1:
        raise ConfigError(f"max_token_length must be at least 1, not {max_token_length}")
    n_merges = n_tokens - len(symbols.alphabet)
    if n_merges < 0:
        raise ConfigError(
            f"a vocabulary of {n_tokens:,} pieces is too small: the alphabet alone has {len(symbols.alphabet):,} (ask for "
            f"more, or limit the alphabet)"
        )
    arguments = symbols.symbols, symbols.starts, symbols.counts
    if criterion == "frequency":
        result = learn_merges(
            *arguments, symbols.alphabet, n_merges, tie_break="id", min_frequency=min_frequency or 1, prefix=prefix,
            max_token_length=max_token_length, reserved=reserved, rules=rules, progress=progress, stop=stop, log=log,
        )  # fmt: skip
        merges, counts, scores, complete = result.merges, result.counts, result.counts.astype(float), result.complete
    else:
        steps = _LikelihoodSteps(symbols, n_merges, prefix, max_token_length, reserved, rules, log)
        report = progress and (lambda: progress(_progress(steps, n_merges)))
        complete = steps.run(min_frequency, n_merges, report, stop)
        merges, counts = steps.learned()
        scores = counts / steps.merge_known[: len(counts), 1:].astype(float).prod(axis=1)
    if complete and len(merges) < n_merges and log:
        log(
            f"no pair is left after {len(merges):,} merges: the vocabulary has {n_tokens - n_merges + len(merges):,} "
            f"pieces, not {n_tokens:,} (min_frequency {min_frequency or 1})"
        )
    vocab = list(symbols.alphabet)
    for a, b in merges.tolist():
        vocab.append(vocab[a] + vocab[b].removeprefix(prefix))
    return WordPieceResult(vocab, merges, counts, scores, complete)


class _LikelihoodSteps(MergeSteps):
    """The steps of the merge loop, with pairs in another order."""

    def __init__(self, symbols, n_merges, prefix, max_token_length, reserved, rules, log):
        data, starts, counts = symbols.symbols, symbols.starts, symbols.counts
        if len(counts) and int(np.diff(starts).max()) > MAX_WORD_SYMBOLS:
            raise TrainingError(f"a word of more than {MAX_WORD_SYMBOLS} symbols cannot be trained on")
        no_map = _check_symbols(data, None, len(symbols.alphabet))
        slots, words = pairs.count_slots(data, starts, no_map)
        vocab = len(symbols.alphabet) + n_merges
        _check_memory(slots, words, vocab, log)
        max_length = min(max_token_length or MAX_WORD_SYMBOLS, MAX_WORD_SYMBOLS)
        super().__init__(
            counts, symbols.alphabet, n_merges, TIE_LEXICOGRAPHIC, max_length, reserved, prefix, rules, True, slots,
            1.25,
        )  # fmt: skip
        self.lay_out(data, starts, no_map)
        self.merge_known = np.empty((n_merges, 3), np.int64)
        self.merge_count = self.merge_known[:, 0]
        self.symbol_count = np.zeros(vocab, np.int64)
        self.symbol_count[: len(symbols.alphabet)] = symbols.frequencies

    def run(self, min_frequency: int | None, n_merges: int, progress, stop) -> bool:
        """Merge until nothing is left to do; False when told to stop."""
        floor = min_frequency or 1
        largest = self.count(floor)
        if min_frequency is None:
            floor = 1 << max(0, largest.bit_length() - 1)
        while self.merges < n_merges:
            if (stop and stop()) or (self.index(floor) and not self.merge(floor, n_merges, progress, stop)):
                return False
            if floor == (min_frequency or 1):
                break
            floor //= 2
            self.count(floor)
        return True

    def index(self, floor: int) -> bool:
        """Record the counted pairs of at least ``floor`` and order them; False when there are none."""
        if not super().index(floor):
            return False
        room, vocab, positions = len(self.records.key), self.vocab, len(self.scratch.position)
        self.grouping = k.Grouping(
            *(np.zeros(vocab, dtype) for dtype in (np.int64, np.int64, np.int32, np.int32)),
            *(np.empty(size, np.int32) for size in (vocab, vocab, positions, positions)),
        )
        self.order = k.Order(
            np.empty(room, np.int32), np.empty(room, np.float64), np.empty(room, np.int32), np.empty((room, 3), np.int64),
            *(np.zeros(size, np.int32) for size in (room, room, vocab, vocab)), self.symbol_count,
        )  # fmt: skip
        last = int(self.state[k.STATE_RECORDS])
        self.state[k.STATE_HEAP] = k.enter(1, last, 0, floor, self.order, self.records, self.tokens)
        return True

    def merge(self, floor: int, n_merges: int, progress, stop) -> bool:
        """Merge until no pair of at least ``floor`` is left or ``n_merges`` are made; False when told to stop."""
        dropped_at = -1
        work = _WORK if progress or stop else 1 << 62
        while True:
            limit = min(n_merges, self.merges + (_MERGES_AT_ONCE if progress or stop else n_merges))
            self.compacted = False
            reason = k.merge_pairs(
                self.words, floor, self.occurrence, self.records, self.order, self.grouping, self.tokens, self.allowed,
                self.rules, self.merge_key, self.merge_known, limit, work, self.state,
            )  # fmt: skip
            if progress:
                progress()
            if reason == k.DRAINED or (reason == k.DONE and self.merges >= n_merges):
                return True
            if stop and stop():
                return False
            need = int(self.state[k.STATE_NEED])
            if reason == k.NEED_TOKEN_BYTES:
                self.tokens = self.tokens._replace(data=_grown(self.tokens.data, 2 * need))
            elif reason == k.NEED_RECORDS:
                room = need + need // 2
                self.records = Records(*(_grown(array, room) for array in self.records))
                names = ("record", "score", "place", "known", "next_left", "next_right")
                grown = {name: _with_room(getattr(self.order, name), room) for name in names}
                self.order = self.order._replace(**grown)
            elif reason == k.NEED_OCCURRENCES:
                if dropped_at == self.merges:
                    self.occurrence = _grown(self.occurrence, need + need // 8)
                else:
                    dropped_at = self.merges
                    k.drop_dead_occurrences(self.occurrence, self.words.pair_at, self.order, self.records, self.state)


def _with_room(array: np.ndarray, rows: int) -> np.ndarray:
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])
