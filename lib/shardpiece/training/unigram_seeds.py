"""What Unigram training starts from: the alphabet, the words cut into segments, and the seed pieces.

Everything follows SentencePiece's trainer (Kudo and Richardson 2018), with three differences. Seeds are found among
distinct words, their frequencies weighted by the words' counts. No piece may hold characters of two scripts (or
whatever else the settings forbid), so words are cut there first and equal segments added up: the likelihood is the
same, and there is less to go through. And a cut, like the end of a word, is something that may follow a piece: a word
that always stands before a comma is a seed, too.
"""

from dataclasses import dataclass

import numpy as np

from shardpiece.errors import TrainingError
from shardpiece.text import unicode_sets
from shardpiece.training import suffix_array_kernels as suffixes
from shardpiece.training import unigram_kernels as k

MARK = "▁"
_MAX_CHARACTERS = 2**31 - 64
_CODE_POINTS = 0x110000
_ZEROS = (ord("0"), 0xFF10)  # of the digits that split_by_number and split_digits mean


@dataclass(frozen=True)
class Alphabet:
    """``characters``: code points by falling count, then rising code point; number n stands for characters[n - 1].
    ``counts``: int64, parallel. ``covered``, ``total``: their occurrences, and those of all characters."""

    characters: np.ndarray
    counts: np.ndarray
    covered: int
    total: int

    def __len__(self) -> int:
        return len(self.characters)


@dataclass(frozen=True)
class Segments:
    """``text``: int32, numbers of characters; ``starts``: int64 [s + 1]; ``counts``: int64 [s]; all distinct, in the
    order of their numbers."""

    text: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class Pieces:
    """``symbols``: int32, numbers of characters, piece after piece; ``offsets``: int64 [n + 1]; ``scores``: float64
    [n]; in the order of the numbers."""

    symbols: np.ndarray
    offsets: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def take(self, keep: np.ndarray) -> "Pieces":
        """The pieces at the indices ``keep``, rising."""
        return gather(self.symbols, self.offsets[keep], self.lengths[keep], self.scores[keep])


def gather(text: np.ndarray, positions: np.ndarray, lengths: np.ndarray, scores: np.ndarray) -> Pieces:
    offsets = np.zeros(len(positions) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    symbols = np.empty(offsets[-1], np.int32)
    k.take_pieces(text, np.ascontiguousarray(positions, np.int64), offsets, symbols)
    return Pieces(symbols, offsets, scores)


def choose_alphabet(data, starts, counts, coverage: float, required: tuple[str, ...]) -> Alphabet:
    """The most frequent characters that together make up ``coverage`` of all, and the ``required`` ones."""
    total = np.zeros(_CODE_POINTS, np.int64)
    k.count_characters(data, starts, counts, total)
    everything = int(total.sum())
    total[0] = 0
    found = np.flatnonzero(total)
    found = found[np.argsort(-total[found], kind="stable")]
    before = np.cumsum(total[found]) - total[found]
    keep = np.zeros(_CODE_POINTS, bool)
    keep[found[before < coverage * everything] if coverage < 1 else found] = True
    keep[[ord(c) for c in required if c != "\0"]] = True
    characters = np.flatnonzero(keep)
    characters = characters[np.argsort(-total[characters], kind="stable")]
    return Alphabet(characters, total[characters], int(total[characters].sum()), everything)


def character_kinds(split_by_script: bool, split_by_number: bool, split_digits: bool) -> np.ndarray:
    """int32 [0x110000], what each character may stand next to inside a piece (see ``unigram_kernels``). Hiragana,
    Katakana and ー count as Han; digits are punctuation's neighbours (Common), or anybody's without
    ``split_by_number``. SentencePiece's digits are 0–9 and the full-width ones; others have scripts."""
    kinds = np.full(_CODE_POINTS, k.ANY, np.int32)
    if split_by_script:
        sets = unicode_sets.scripts()
        common = next(i for i, members in enumerate(sets) if members[ord("0")])
        kinds[:] = k.SCRIPT + common  # what Unicode gives no script, too
        for i, members in enumerate(sets):
            kinds[members] = k.INHERITED if members[0x0300] else k.SCRIPT + i
        han = kinds[ord("漢")]
        kinds[(kinds == kinds[ord("ひ")]) | (kinds == kinds[ord("カ")])] = han
        kinds[ord("ー")] = han
    kinds[ord(" ")] = k.ANY
    for zero in _ZEROS:
        if not split_by_number:
            kinds[zero : zero + 10] = k.ANY
        if split_digits:
            kinds[zero : zero + 10] = k.ALONE
    kinds[ord(MARK)] = k.MARK
    return kinds


def cut(data, starts, counts, alphabet: Alphabet, kinds: np.ndarray) -> Segments:
    """The words as distinct segments with their counts."""
    number_of = np.zeros(_CODE_POINTS, np.int32)
    number_of[alphabet.characters] = np.arange(1, len(alphabet) + 1)
    size = int(characters_in(data, starts))
    if size > _MAX_CHARACTERS:
        raise TrainingError(
            f"the words have {size:,} characters; Unigram training takes {_MAX_CHARACTERS:,}: train on fewer words"
        )
    text, order, length = (np.empty(size, np.int32) for _ in range(3))
    count = np.empty(size, np.int64)
    m, used = k.cut_words(data, starts, counts, number_of, _by_number(alphabet, kinds), text, order, length, count)
    text, order, length, count = text[:used], order[:m], length[:used], count[:m]
    # Sorting moves the counts along: they are looked up by position.
    at = np.zeros(used, np.int32)
    at[order] = np.arange(m)
    suffixes.sort_strings(text, length, order, len(alphabet))
    count = count[at[order]]
    del at
    out, ends, sums = np.empty(used, np.int32), np.empty(m + 1, np.int64), np.empty(m, np.int64)
    m, used = suffixes.merge_equal(text, length, order, count, ends, sums, out)
    return Segments(out[:used].copy(), ends[: m + 1].copy(), sums[:m].copy())


def find_seeds(segments: Segments, alphabet: Alphabet, kinds: np.ndarray, longest: int, seed_size: int) -> Pieces:
    """Every character that occurs, and the ``seed_size`` substrings of 2 to ``longest`` characters with the highest
    product of frequency and length, of equal ones the first in the order of the numbers; their scores are the
    logarithms of their shares of the sum of these."""
    text = segments.text
    n = len(text)
    length = np.empty(n, np.int32)
    k.longest_pieces(text, segments.starts, _by_number(alphabet, kinds), longest + 1, length)
    segment_of = np.repeat(np.arange(len(segments), dtype=np.int32), np.diff(segments.starts))
    order = np.arange(n, dtype=np.int32)
    suffixes.sort_strings(text, length, order, len(alphabet))
    room = n // 4 + 1024
    while True:
        left, depth, score = np.empty(room, np.int32), np.empty(room, np.uint16), np.empty(room, np.int64)
        found = suffixes.repeated_substrings(
            text, length, order, segment_of, segments.counts, longest, left, depth, score
        )
        if found <= room:
            break
        room = found
    left, depth, score = left[:found], depth[:found], score[:found]
    if found > seed_size:
        # In the order of the numbers, so that of equal scores the first are kept.
        by_number = np.lexsort((depth, left))
        best = by_number[np.argsort(-score[by_number], kind="stable")[:seed_size]]
        left, depth, score = left[best], depth[best], score[best]
    # Characters: the first string that begins with each.
    first = text[order]
    singles = np.flatnonzero(np.concatenate([[True], first[1:] != first[:-1]])) if n else np.empty(0, np.int64)
    left = np.concatenate([singles, left])
    depth = np.concatenate([np.ones(len(singles), np.int64), depth])
    score = np.concatenate([alphabet.counts[first[singles] - 1], score])
    by_number = np.lexsort((depth, left))
    left, depth, score = left[by_number], depth[by_number], score[by_number]
    scores = np.empty(len(score), np.float64)
    k.first_scores(score, scores)
    return gather(text, order[left], depth, scores)


def characters_in(data: np.ndarray, starts: np.ndarray) -> int:
    """Characters of all words; bytes that are no UTF-8 may count as one each."""
    part = data[int(starts[0]) : int(starts[-1])]
    return len(part) - int(np.count_nonzero((part & 0xC0) == 0x80))


def _by_number(alphabet: Alphabet, kinds: np.ndarray) -> np.ndarray:
    result = np.zeros(len(alphabet) + 1, np.int32)
    result[1:] = kinds[alphabet.characters]
    return result
