"""The alphabet of character-based training: which characters are kept, how they are spelled, words as base symbols."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training import alphabet_kernels as k

MAX_WEIGHT = 2.0**62
"""Largest total of a table: the sum over its words of bytes times count."""


@dataclass(frozen=True)
class CharacterSymbols:
    """Words as base symbols.

    ``symbols``: int32, the base symbols of all words one after the other, -1 for a character that is not kept;
    ``starts``: int64 [w + 1], word w is symbols[starts[w]:starts[w + 1]]; ``counts``: int64 [w], as given.
    ``alphabet``: the spelling of each base symbol in UTF-8, by id: first the kept characters as they are, by code point
    (the first ``characters`` of them, also those that occur with a mark only, as Hugging Face's trainer has it), then
    the marked ones (``##c``, ``c</w>``) by code point, or the end-of-word symbol that stands alone.
    ``frequencies``: int64 [len(alphabet)], how often each base symbol occurs, weighted by the word counts.
    ``dropped_characters`` distinct characters were not kept; ``dropped_occurrences`` of ``total`` occurrences of
    characters were theirs (weighted by the word counts, as Python integers).
    """

    symbols: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    alphabet: list[bytes]
    characters: int
    frequencies: np.ndarray
    dropped_characters: int
    dropped_occurrences: int
    total: int


def count_characters(data: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The characters of words (arrays as ``character_symbols`` takes them) and how often each occurs, weighted by the
    word counts: (code points int32, ascending; occurrences int64). Raises as ``character_symbols``."""
    occurrences, _, _ = _count(data, starts, counts)
    code_points = np.flatnonzero(occurrences)
    return code_points.astype(np.int32), occurrences[code_points]


def choose_characters(
    code_points: np.ndarray,
    occurrences: np.ndarray,
    *,
    coverage: float = 1.0,
    limit: int | None = None,
    initial: Iterable[str] = (),
) -> list[int]:
    """The code points to keep, most frequent first, at equal counts the smaller code point first.

    ``coverage``: as SentencePiece, characters are taken until they make up this share of all occurrences (compared
    exactly). ``limit``: as Hugging Face's limit_alphabet, so many characters at most. ``initial``: characters kept in
    any case; they come first and count against ``limit``.
    Raises ConfigError for settings out of range.
    """
    share = Fraction(str(coverage))
    if not 0 < share <= 1:
        raise ConfigError(f"character coverage must be above 0 and at most 1, not {coverage}")
    if limit is not None and limit < 1:
        raise ConfigError(f"the limit of the alphabet must be at least 1, not {limit}")
    fixed = []
    for character in initial:
        if not isinstance(character, str) or len(character) != 1 or "\ud800" <= character <= "\udfff":
            raise ConfigError(f"the initial alphabet takes single characters, not {character!a}")
        fixed.append(ord(character))
    order = np.lexsort((code_points, -occurrences))
    ranked = list(zip(code_points[order].tolist(), occurrences[order].tolist(), strict=True))
    wanted = share * sum(n for _, n in ranked)
    taken: list[int] = []
    covered = 0
    for c, n in ranked:
        if covered >= wanted:
            break
        taken.append(c)
        covered += n
    kept = dict.fromkeys(fixed)
    for c in taken:
        if limit is not None and len(kept) >= limit:
            break
        kept[c] = None
    return list(kept)


def character_symbols(
    data: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    *,
    coverage: float = 1.0,
    limit: int | None = None,
    initial: Iterable[str] = (),
    suffix: bytes = b"",
    suffix_separate: bool = False,
    prefix: bytes = b"",
) -> CharacterSymbols:
    """Words as sequences of base symbols, one per character.

    ``data``: uint8, the words' UTF-8 bytes one after the other; ``starts``: int64 [w + 1]; ``counts``: int64 [w],
    positive. ``coverage``, ``limit``, ``initial``: which characters are kept (``choose_characters``). ``prefix``: put
    before every character but a word's first (``##``). ``suffix``: the end-of-word mark (``</w>``), attached to a
    word's last character (subword-nmt since 0.2, Hugging Face's end_of_word_suffix) or, with ``suffix_separate``, a
    symbol of its own after each word (Sennrich, Haddow and Birch 2016).

    Beside the input it takes four bytes per character. Raises ConfigError for settings out of range, for marks that
    make two characters look alike, and for words that are no text; TrainingError for totals beyond 2^62.
    """
    _check_mark("prefix", prefix)
    _check_mark("suffix", suffix)
    if suffix_separate and not suffix:
        raise ConfigError("an end-of-word symbol needs a spelling (suffix)")
    occurrences, places, size = _count(data, starts, counts)
    code_points = np.flatnonzero(occurrences)
    found = occurrences[code_points]
    kept = sorted(choose_characters(code_points, found, coverage=coverage, limit=limit, initial=initial))

    alphabet = [chr(c).encode() for c in kept]
    ids = np.full((k.PLACES, k.CODE_POINTS), -1, np.int32)
    attached = b"" if suffix_separate else suffix
    marked: dict[bytes, int] = {}
    for s, c in enumerate(kept):
        spellings = [
            (prefix if place & 2 else b"") + alphabet[s] + (attached if place & 1 else b"") for place in range(k.PLACES)
        ]
        new = []
        for place, spelling in enumerate(spellings):
            if spelling == alphabet[s]:
                ids[place, c] = s
            elif places[c] >> place & 1:
                new.append(spelling)
        for spelling in sorted(set(new)):
            if spelling in marked or (prefix and attached and spellings[1] == spellings[2]):
                raise ConfigError(f"the marks {prefix!r} and {suffix!r} spell two base symbols as {spelling!r}")
            marked[spelling] = len(alphabet) + len(marked)
        for place, spelling in enumerate(spellings):
            if spelling != alphabet[s]:
                ids[place, c] = marked.get(spelling, -1)
    characters = len(alphabet)
    alphabet += marked
    closing = -1
    if suffix_separate:
        if suffix in alphabet:
            raise ConfigError(f"the end-of-word symbol {suffix!r} also occurs in the text: choose another suffix")
        closing = len(alphabet)
        alphabet.append(suffix)

    symbols = np.empty(size + (len(counts) if closing >= 0 else 0), np.int32)
    symbol_starts = np.empty(len(counts) + 1, np.int64)
    frequencies = np.zeros(len(alphabet), np.int64)
    k.write_symbols(data, starts, counts, ids, closing, symbols, symbol_starts, frequencies)
    total = int(found.sum())
    of_kept = int(occurrences[kept].sum())
    return CharacterSymbols(
        symbols, symbol_starts, counts, alphabet, characters, frequencies,
        dropped_characters=len(code_points) - int(np.isin(code_points, kept).sum()),
        dropped_occurrences=total - of_kept,
        total=total,
    )  # fmt: skip


def _check_mark(name: str, mark: bytes) -> None:
    try:
        mark.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name} {mark!r} is no text") from None


def _count(data, starts, counts) -> tuple[np.ndarray, np.ndarray, int]:
    """(occurrences int64, places uint8, both by code point; characters of the table)"""
    if len(counts) and int(counts.min()) < 1:
        raise TrainingError("word counts must be positive")
    if len(counts) and float(np.dot(np.diff(starts).astype(np.float64), counts.astype(np.float64))) >= MAX_WEIGHT:
        raise TrainingError("the table's total count times word length exceeds 2^62; scale the counts down")
    occurrences = np.zeros(k.CODE_POINTS, np.int64)
    places = np.zeros(k.CODE_POINTS, np.uint8)
    size, bad = k.count_characters(data, starts, counts, occurrences, places)
    if bad >= 0:
        word = data[starts[bad] : starts[bad + 1]].tobytes()
        raise ConfigError(
            f"the word {word[:20]!r} of the table is no valid UTF-8: training on characters needs words that are text, "
            f"not those of the pre-tokenizer 'byte'"
        )
    return occurrences, places, int(size)
