"""The most frequent words of a word table, which workers encode before their first task.

Workers keep the words they have encoded; what is known to come often is then there from the beginning. Which words these
are changes no output.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from shardpiece.errors import ConfigError, FormatError, ShardpieceError
from shardpiece.kernel_cache import read_only
from shardpiece.pipeline.progress import log
from shardpiece.text.documents import Words
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.words import table as tables
from shardpiece.words.table import WordTable

# Longer words are rare, and encoders keep none of more than a few hundred bytes.
_LONGEST = 64
# Of a worker's cache, so much for the bytes of these words: with their ids and hashes they take about half of it.
_SHARE = 16
_BLOCK = 4096
_TAKEN = 1 << 20


@dataclass(frozen=True)
class WarmWords:
    """``data``: uint8, words one after the other, the most frequent one last; ``ends``: int64, where each one ends."""

    data: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    def encode_with(self, tokenizer: Tokenizer) -> None:
        """Encode every word once, for the encoder to keep. What it cannot encode may not come in the text either."""
        start = 0
        for first in range(0, len(self), _BLOCK):
            ends = self.ends[first : first + _BLOCK].copy()
            with suppress(ShardpieceError):
                tokenizer.encoder.encode(Words(self.data, start, ends, np.array([len(ends)])))
            start = int(ends[-1])


def warm_words(directory: str, tokenizer: Tokenizer, cache_bytes: int, required: bool) -> WarmWords | None:
    """The words for workers with a cache of ``cache_bytes``, from the word table in ``directory``. None when the table was
    counted with another text engine, or is not there; if ``required``, that is an error: ConfigError or FormatError."""
    try:
        manifest = tables.read_manifest(directory)
        if manifest["engine_fingerprint"] != tokenizer.engine.fingerprint:
            if not required:
                return None
            raise ConfigError(
                f"encode.warm_words: {directory} was counted with another text engine than the tokenizer's: its words are "
                f"not those that come in the text. Count again with the tokenizer's, or leave it out"
            )
        words = _most_frequent(directory, manifest, cache_bytes // _SHARE)
    except FormatError:
        if required:
            raise
        return None
    log(f"encode: each worker begins with the {len(words):,} most frequent words of {directory}")
    return words


def _most_frequent(directory: str, manifest: dict, most_bytes: int) -> WarmWords:
    """The first words in order of count, descending, then of bytes, of as many bytes as there may be; those that occur
    once are no use. One part of the table is in memory at a time."""
    kept = _Candidates(most_bytes)
    for part in WordTable.read_parts(directory, manifest):
        if len(part):
            kept.add(*part.arrays())
    return kept.words()


class _Candidates:
    """The best words so far, in the table's order, which is that of their bytes."""

    def __init__(self, most_bytes: int):
        self._most_bytes = most_bytes
        self._data, self._sizes, self._counts = np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # what came since
        self._least = 2  # words that occur once are no use
        self._held: tuple[bytes, int] | None = None  # the last word: it may go on in the next part, for another group

    def add(self, data: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> None:
        """The next part of the table, summed over groups."""
        first = data[starts[0] : starts[1]].tobytes()
        if self._held is not None:
            held, count = self._held
            if held == first:
                counts = counts.copy()
                counts[0] += count
            else:
                self._take(np.frombuffer(held, np.uint8), np.array([0, len(held)]), np.array([count]))
        self._held = data[starts[-2] : starts[-1]].tobytes(), int(counts[-1])
        for first in range(0, len(counts) - 1, _TAKEN):
            end = min(first + _TAKEN, len(counts) - 1)
            self._take(data, starts[first : end + 1], counts[first:end])

    def words(self) -> WarmWords:
        if self._held is not None:
            held, count = self._held
            self._take(np.frombuffer(held, np.uint8), np.array([0, len(held)]), np.array([count]))
            self._held = None
        self._shrink()
        order = np.argsort(-self._counts, kind="stable")[::-1]
        data, sizes = _gathered(self._data, self._sizes, order)
        return WarmWords(read_only(data), read_only(np.cumsum(sizes)))

    def _take(self, data: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> None:
        sizes = np.diff(starts)
        chosen = np.flatnonzero((counts >= self._least) & (sizes <= _LONGEST))
        self._parts.append((*_gathered(data[int(starts[0]) : int(starts[-1])], sizes, chosen), counts[chosen]))
        if sum(len(part) for part, _, _ in self._parts) > 8 * self._most_bytes:
            self._shrink()

    def _shrink(self) -> None:
        """Keep the most frequent words that the bytes allow."""
        parts = [(self._data, self._sizes, self._counts), *self._parts]
        data, sizes, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._parts.clear()
        order = np.argsort(-counts, kind="stable")
        n = int(np.searchsorted(np.cumsum(sizes[order]), self._most_bytes, side="right"))
        if n < len(order):
            # All words to come stand behind this one: their bytes do, and their counts are no higher.
            self._least = int(counts[order[n]]) + 1
        best = np.sort(order[:n])
        self._data, self._sizes = _gathered(data, sizes, best)
        self._counts = counts[best]


def _gathered(data: np.ndarray, sizes: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words at ``order`` one after the other, and their sizes."""
    starts = np.cumsum(sizes) - sizes
    chosen = sizes[order]
    out_starts = np.cumsum(chosen) - chosen
    at = np.repeat(starts[order] - out_starts, chosen) + np.arange(int(chosen.sum()))
    return data[at], chosen
