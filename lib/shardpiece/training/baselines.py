"""Vocabularies without learned pieces, to compare others with: the most frequent words, characters, bytes."""

import numpy as np

from shardpiece.errors import ConfigError
from shardpiece.training.alphabet import choose_characters, count_characters

BYTE_SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")
"""Special tokens of the byte vocabulary, at the ids 0 to 2."""


def word_vocabulary(
    data: np.ndarray, starts: np.ndarray, counts: np.ndarray, n_tokens: int, *, min_frequency: int = 1
) -> list[bytes]:
    """The ``n_tokens`` most frequent words, or all of at least ``min_frequency``, count descending, equal counts by bytes
    ascending. ``data``: uint8, the words' bytes; ``starts``: int64 [w + 1]; ``counts``: int64 [w]."""
    if n_tokens < 0 or min_frequency < 1:
        raise ConfigError(f"{n_tokens} words of min_frequency {min_frequency} cannot be: at least 0 and 1 are")
    chosen = np.flatnonzero(counts >= min_frequency)
    if n_tokens < len(chosen):
        # Only those at the last count have to be compared as bytes.
        least = np.partition(counts[chosen], len(chosen) - n_tokens)[len(chosen) - n_tokens] if n_tokens else np.inf
        chosen = np.flatnonzero(counts >= max(least, min_frequency))
    words = [(-int(counts[w]), data[starts[w] : starts[w + 1]].tobytes()) for w in chosen.tolist()]
    return [word for _, word in sorted(words)[:n_tokens]]


def character_vocabulary(
    data: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    n_tokens: int | None = None,
    *,
    by: str = "frequency",
    **choice,
) -> list[bytes]:
    """The characters of the words, most frequent first (``by`` "frequency"; equal counts by code point) or by code point
    ("code_point"), ``n_tokens`` at most. ``choice``: ``coverage``, ``limit`` and ``initial`` of choose_characters; the
    initial ones come first, and more than ``n_tokens`` of them are a ConfigError."""
    if by not in ("frequency", "code_point"):
        raise ConfigError(f"characters are ordered by frequency or code_point, not {by!r}")
    initial = list(dict.fromkeys(choice.get("initial", ())))
    if n_tokens is not None and n_tokens < len(initial):
        raise ConfigError(
            f"a vocabulary of {n_tokens:,} characters is too small: the initial alphabet alone has {len(initial):,}"
        )
    chosen = choose_characters(*count_characters(data, starts, counts), **choice)[:n_tokens]
    if by == "code_point":
        chosen.sort()
    return [chr(c).encode() for c in chosen]


def byte_vocabulary() -> list[bytes]:
    """Every byte by its value: with BYTE_SPECIAL_TOKENS in front, ids are byte + 3 (ByT5, Xue et al. 2022)."""
    return [bytes([b]) for b in range(256)]
