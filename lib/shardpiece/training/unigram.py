"""The Unigram trainer: weighted words in, pieces with log-probabilities out.

The algorithm is Kudo's (2018) as SentencePiece trains it: many seed pieces; expectation maximization over all ways to
segment each word; pieces whose removal costs the least likelihood are dropped, a quarter at a time; repeat until little
more than the wanted number is left. What is ours:

* frequencies are int64, expectations float64, and every sum has one order: the result is the same to the last bit for
  any number of threads and on any machine (``portable_math_kernels``);
* seeds are weighted by the words' counts, and words are cut where no piece can reach (``unigram_seeds``);
* single characters stay in the model throughout, instead of becoming unknown when a longer piece takes their place.

The segments are divided into lanes, whose number depends on the table alone. A thread takes a lane at a time, and
what the lanes found is added up in their order.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.tokenizer.trie_kernels import build_trie
from shardpiece.training import unigram_kernels as k
from shardpiece.training import unigram_seeds as seeds
from shardpiece.training.memory import available_bytes
from shardpiece.training.unigram_seeds import Pieces, Segments

LEAST_EXPECTED = 0.5
"""Pieces expected less often than this are dropped after each M step."""

_SURPLUS = 1.1  # pruning ends at this multiple of the wanted size; the rest is cut by score
_LANES = 16
_LANE_SYMBOLS = 1 << 18  # of the smallest table that gets more than one lane
_CHUNK_SYMBOLS = 1 << 18  # of a lane between two questions to `stop`
_SCORE_STEP = 1e-4
_MAX_PIECE_LENGTH = 512
_BYTES_PER_CHARACTER = 36
_BYTES_PER_SEED = 160


@dataclass(frozen=True)
class UnigramResult:
    """``pieces``: UTF-8 bytes, by falling score, then by the bytes; ``scores``: float64, parallel, natural logarithms
    of the pieces' probabilities (their sum is a little below one). ``counts``: float64, parallel, how often each is
    expected in the words under the last model of the training (0 for required characters that do not occur).
    ``complete``: False when ``stop`` ended the training early. ``seeds``: number of seed pieces; ``coverage``: share of
    the words' characters that the alphabet has; ``rounds``: times pruned; ``nats_per_character``: negative
    log-likelihood per character of the words before the last cut."""

    pieces: list[bytes]
    scores: np.ndarray
    counts: np.ndarray
    complete: bool
    seeds: int
    characters: int
    coverage: float
    rounds: int
    nats_per_character: float


def projected_bytes(characters: int, seed_size: int = 1_000_000, max_piece_length: int = 16) -> int:
    """Peak bytes of the trainer for words of that many ``characters`` (words cut and added up need less), the table
    itself not counted. An upper estimate."""
    lanes = 8 * min(_LANES, 1 + characters // _LANE_SYMBOLS)
    found = min(seed_size, 2 * characters)
    return characters * _BYTES_PER_CHARACTER + found * (_BYTES_PER_SEED + 2 * lanes) + (96 << 20)


def learn_unigram(
    data: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    vocab_size: int,
    *,
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    max_piece_length: int = 16,
    seed_size: int = 1_000_000,
    shrinking_factor: float = 0.75,
    sub_iterations: int = 2,
    split_by_script: bool = True,
    split_by_number: bool = True,
    split_digits: bool = False,
    required: tuple[str, ...] = (),
    threads: int = 1,
    progress: Callable[[float, dict], None] | None = None,
    stop: Callable[[], bool] | None = None,
    log: Callable[[str], None] | None = None,
) -> UnigramResult:
    """Learn up to ``vocab_size`` pieces, characters included; special tokens and byte pieces are the caller's.

    ``data``: uint8, the words' UTF-8 bytes one after the other; ``starts``: int64 [w + 1]; ``counts``: int64 [w],
    positive. Words usually begin with ▁, which no piece has anywhere else. Bytes that are no UTF-8, and U+0000, are
    treated as characters outside the alphabet.

    ``character_coverage``: the most frequent characters that together make up this share of the text are pieces, as
    are the ``required`` ones; a word is cut at others, which byte fallback or the unk token will spell
    (``byte_fallback`` changes nothing here: its 256 pieces are not learned). ``max_piece_length``: in characters.
    ``seed_size``: substrings to begin with. ``shrinking_factor``: share of the pieces that each pruning keeps.
    ``sub_iterations``: EM steps before each. ``split_by_script``: no piece has characters of two scripts (digits and
    punctuation are a script of their own); without ``split_by_number`` digits go with any. ``split_digits``: digits
    are pieces of their own.

    ``threads`` changes the time, never the result. ``progress(done, facts)``: done from 0 to 1; facts: stage, pieces,
    nats_per_character. ``stop()`` is asked about once a second; when it is true, the pieces so far are cut to size.
    Returns fewer pieces when no more are worth it, and tells ``log``.

    Raises ConfigError for settings out of range or fewer pieces than there are characters, TrainingError when memory
    does not suffice or there is nothing to train on.
    """
    _check(vocab_size, character_coverage, max_piece_length, seed_size, shrinking_factor, sub_iterations, threads)
    del byte_fallback
    odd = [c for c in required if len(c) != 1]
    if odd:
        raise ConfigError(f"required takes characters, and {odd[0]!r} is not one character")
    if len(counts) == 0:
        raise TrainingError("the word table is empty: nothing to train on")
    if int(counts.min()) < 1:
        raise TrainingError("word counts must be positive")
    weight = float(np.dot(np.diff(starts).astype(np.float64), counts.astype(np.float64))) * max_piece_length
    if weight >= 2.0**62:
        raise TrainingError("the words' total length times max_piece_length exceeds 2^62; scale the counts down")
    characters = seeds.characters_in(data, starts)
    need, free = projected_bytes(characters, seed_size, max_piece_length), available_bytes()
    if log:
        log(
            f"Unigram: {len(counts):,} words, {characters:,} characters, up to about {need / 1e6:,.0f} MB of memory "
            f"({free / 1e6:,.0f} MB available)"
        )
    if need > free:
        raise TrainingError(
            f"Unigram training needs up to {need / 1e9:.1f} GB for {characters:,} characters, and {free / 1e9:.1f} GB "
            f"are available: run the driver on a machine with more memory, or train on fewer distinct words"
        )

    alphabet = seeds.choose_alphabet(data, starts, counts, character_coverage, required)
    if not len(alphabet):
        raise TrainingError("the words have no characters: nothing to train on")
    if len(alphabet) > vocab_size:
        raise ConfigError(
            f"vocab_size leaves room for {vocab_size:,} pieces, and there are {len(alphabet):,} characters at "
            f"character_coverage {character_coverage}: set vocab_size higher by at least "
            f"{len(alphabet) - vocab_size:,}, or character_coverage lower"
        )
    run = _Run(threads, progress, stop)
    run.report(0.0, "seeds", 0)
    kinds = seeds.character_kinds(split_by_script, split_by_number, split_digits)
    segments = seeds.cut(data, starts, counts, alphabet, kinds)
    pieces = seeds.find_seeds(segments, alphabet, kinds, max_piece_length, seed_size)
    n_seeds = len(pieces)
    if log:
        log(
            f"Unigram: {len(alphabet):,} characters cover {alphabet.covered / alphabet.total:.4%} of the text, "
            f"{len(segments):,} segments, {n_seeds:,} seed pieces"
        )
    wanted = int(vocab_size * _SURPLUS)
    expected_rounds = max(1, math.ceil(math.log(max(n_seeds / wanted, 1.0)) / -math.log(shrinking_factor)) + 1)
    rounds = 0
    expected = np.zeros(n_seeds)
    em = _Passes(run, segments, len(alphabet) + 1, max_piece_length)
    try:
        while True:
            run.done = min(0.98, 0.05 + 0.93 * rounds / expected_rounds)
            run.share = 0.93 / expected_rounds
            for _ in range(sub_iterations):
                new, expected = em.step(pieces)
                pieces, expected = new, expected
            if len(pieces) <= wanted:
                break
            keep = em.prune(pieces, max(wanted, int(shrinking_factor * len(pieces))))
            pieces, expected = pieces.take(keep), expected[keep]
            rounds += 1
        complete = True
    except _Stopped:
        complete = False
    finally:
        em.close()
    result = _finish(pieces, expected, alphabet, vocab_size)
    if log and complete and len(result[0]) < vocab_size:
        log(f"Unigram: only {len(result[0]):,} pieces are worth keeping, not {vocab_size:,}")
    run.report(1.0, "done", len(result[0]))
    coverage = alphabet.covered / alphabet.total
    return UnigramResult(*result, complete, n_seeds, len(alphabet), coverage, rounds, run.nats)


def _check(vocab_size, character_coverage, max_piece_length, seed_size, shrinking_factor, sub_iterations, threads):
    for name, value, low, high in (
        ("vocab_size", vocab_size, 1, 2**31 - 1),
        ("character_coverage", character_coverage, 0.9, 1.0),
        ("max_piece_length", max_piece_length, 1, _MAX_PIECE_LENGTH),
        ("seed_size", seed_size, 1, 100_000_000),
        ("shrinking_factor", shrinking_factor, 0.1, 0.99),
        ("sub_iterations", sub_iterations, 1, 100),
        ("threads", threads, 1, 1024),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} must be between {low} and {high}, not {value}")


def _finish(pieces: Pieces, expected, alphabet, vocab_size: int):
    """The characters of the alphabet and the best other pieces: (bytes, scores, counts). Characters that do not occur
    come last, below all others."""
    characters = alphabet.characters.tolist()
    single = np.flatnonzero(pieces.lengths == 1)
    others = np.flatnonzero(pieces.lengths > 1)
    room = max(0, vocab_size - len(characters))
    others = np.sort(others[np.argsort(-pieces.scores[others], kind="stable")[:room]])
    chosen = []
    symbols, offsets = pieces.symbols.tolist(), pieces.offsets.tolist()
    for i in np.sort(np.concatenate([single, others])).tolist():
        text = "".join(chr(characters[c - 1]) for c in symbols[offsets[i] : offsets[i + 1]])
        chosen.append((-float(pieces.scores[i]), text.encode(), float(expected[i])))
    present = {symbols[offsets[i]] for i in single.tolist()}
    lowest = max((score for score, _, _ in chosen), default=0.0)
    missing = [c for c in range(1, len(characters) + 1) if c not in present]
    for rank, c in enumerate(missing):
        chosen.append((lowest + _SCORE_STEP * (rank + 1), chr(characters[c - 1]).encode(), 0.0))
    chosen.sort(key=lambda item: item[:2])
    return (
        [piece for _, piece, _ in chosen],
        np.array([-score for score, _, _ in chosen], np.float64),
        np.array([count for _, _, count in chosen], np.float64),
    )


class _Stopped(Exception):
    pass


class _Run:
    """Whom to tell and whom to ask in between, in the thread that started the training."""

    def __init__(self, threads, progress, stop):
        self.threads, self.progress, self.stop = threads, progress, stop
        self.done = self.share = self.reported = 0.0
        self.nats = math.nan

    def report(self, done: float, stage: str, pieces: int) -> None:
        self.reported = max(self.reported, done)
        if self.progress:
            self.progress(self.reported, {"stage": stage, "pieces": pieces, "nats_per_character": self.nats})

    def ask(self) -> None:
        if self.stop and self.stop():
            raise _Stopped


class _Passes:
    """The passes over the segments, lane by lane."""

    def __init__(self, run: _Run, segments: Segments, n_symbols: int, most: int):
        self.run, self.segments, self.n_symbols, self.most = run, segments, n_symbols, most
        starts = segments.starts
        size = int(starts[-1])
        lanes = min(_LANES, 1 + size // _LANE_SYMBOLS)
        borders = np.searchsorted(starts, [size * i // lanes for i in range(lanes + 1)])
        borders[0], borders[-1] = 0, len(segments)
        # For each lane the borders of its chunks.
        self.lanes = []
        for low, high in pairwise(borders.tolist()):
            marks = np.arange(starts[low], starts[high], _CHUNK_SYMBOLS)[1:]
            self.lanes.append(np.unique(np.concatenate([[low], np.searchsorted(starts, marks), [high]])).tolist())
        longest = int(np.diff(starts).max(initial=1))
        self.scratch = [None] * lanes
        self.longest = longest
        self.characters = float(np.dot(np.diff(starts).astype(np.float64), segments.counts.astype(np.float64)))
        # Rescaling keeps the E step right whatever this is: see unigram_kernels.expect.
        self.log_scale = 2.0
        self.pool = ThreadPoolExecutor(run.threads) if run.threads > 1 else None

    def close(self) -> None:
        if self.pool:
            self.pool.shutdown()

    def _map(self, function, items: list) -> list:
        return list(self.pool.map(function, items)) if self.pool else [function(item) for item in items]

    def _walk(self, function) -> None:
        """Call function(lane, first, last) for the chunks of all lanes, those of a lane in order."""
        chunks = max(map(len, self.lanes)) - 1
        for c in range(chunks):
            self.run.ask()
            self._map(
                lambda lane, c=c: function(lane, self.lanes[lane][c], self.lanes[lane][c + 1]),
                [lane for lane, borders in enumerate(self.lanes) if c + 1 < len(borders)],
            )

    def _scratch(self, lane: int):
        if self.scratch[lane] is None:
            n = self.longest + 1
            edges = n * self.most
            self.scratch[lane] = (
                np.empty(n), np.empty(n), np.empty(edges, np.int32), np.empty(edges, np.int32), np.empty(edges),
                np.empty(n, np.int64), np.empty(n, np.int8),
            )  # fmt: skip
        return self.scratch[lane]

    def step(self, pieces: Pieces) -> tuple[Pieces, np.ndarray]:
        """One E and one M step: the pieces that are left with their new scores, and their expected counts."""
        s = self.segments
        nodes, node_of = build_trie(pieces.symbols, pieces.offsets, self.n_symbols)
        weight = np.empty(len(pieces))
        log_scale = min(self.log_scale, 300.0 / self.most)
        k.weights(pieces.scores, pieces.offsets, log_scale, weight)
        nodes["weight"][node_of] = weight
        found = [np.zeros(len(nodes)) for _ in self.lanes]
        sums = np.zeros(len(self.lanes))

        def expect(lane, first, last):
            sums[lane] += k.expect(
                s.text, s.starts, s.counts, first, last, nodes, self.most, log_scale, found[lane], *self._scratch(lane)
            )

        self._walk(expect)
        for lane in found[1:]:
            found[0] += lane
        expected = found[0][node_of]
        self.run.nats = -sum(sums.tolist()) / self.characters
        if not math.isfinite(self.run.nats):
            raise TrainingError("the likelihood of the words is not finite: a word is too improbable to train on")
        self.log_scale = self.run.nats
        scores = np.empty(len(pieces))
        k.new_scores(expected, pieces.offsets, LEAST_EXPECTED, scores)
        keep = np.flatnonzero(scores > -np.inf)
        self.run.report(self.run.done, "em", len(keep))
        left = Pieces(pieces.symbols, pieces.offsets, scores)
        return (left if len(keep) == len(left) else left.take(keep)), expected[keep]

    def prune(self, pieces: Pieces, size: int) -> np.ndarray:
        """The indices of the pieces to keep, rising: every character, and up to ``size`` in all by falling loss, of
        equal ones the first."""
        s = self.segments
        nodes, node_of = build_trie(pieces.symbols, pieces.offsets, self.n_symbols)
        nodes["weight"] = -np.inf
        nodes["weight"][node_of] = pieces.scores
        found = [np.zeros(len(nodes), np.int64) for _ in self.lanes]

        def count(lane, first, last):
            best, _, edges, lengths, *_ = self._scratch(lane)
            k.best_counts(s.text, s.starts, s.counts, first, last, nodes, found[lane], best, edges, lengths)

        self._walk(count)
        used = sum(found[1:], found[0])
        total = float(used.sum())
        loss = np.empty(len(pieces))
        borders = [*range(0, len(pieces), 1 << 16), len(pieces)]
        self._map(
            lambda i: k.losses(
                pieces.symbols, pieces.offsets, borders[i], borders[i + 1], nodes, node_of, used, total, loss
            ),
            list(range(len(borders) - 1)),
        )
        order = np.argsort(-loss, kind="stable")
        keep = order[loss[order] > -np.inf]
        singles = int((loss == np.inf).sum())
        keep = np.sort(keep[: max(size, singles)])
        self.run.report(self.run.done + self.run.share, "prune", len(keep))
        return keep
