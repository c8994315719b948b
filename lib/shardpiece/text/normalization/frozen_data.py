"""The frozen Unicode tables of the normalizers, read from ``data/`` when first needed.

They hold what the reference libraries know, found by asking them about every code point: Hugging Face normalizes with
Unicode 9.0, lowercases with 17.0, cuts graphemes with 17.0 and cleans with tables older than 9.0; SentencePiece's rules
are of Unicode 17.0. tools/freeze_normalization.py writes the files; nothing here asks the running Python.
"""

from functools import cache
from importlib import resources
from itertools import islice

import numpy as np

CODE_POINTS = 0x110000

# What Rust's char::is_whitespace, so Strip and BertNormalizer, take for white space.
WHITESPACE = frozenset(
    [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
)

# BertNormalizer's "Chinese" characters. The hole before U+2B920 is a slip in the original that models have learnt.
CHINESE = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B81F), (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)  # fmt: skip

# The characters that the NMT rules drop, and those they turn into spaces. SentencePiece's rules have U+061C among the
# spaces and not U+200D.
NMT_REMOVED = (*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F)
NMT_SPACES = (
    0x09, 0x0A, 0x0C, 0x0D, 0x1680, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD,
)  # fmt: skip

HANGUL, HANGUL_END = 0xAC00, 0xD7A4
HANGUL_L, HANGUL_V, HANGUL_T = 0x1100, 0x1161, 0x11A7


def hangul_jamo(c: int) -> tuple[int, ...]:
    """What a Hangul syllable decomposes to."""
    s = c - HANGUL
    first = (HANGUL_L + s // 588, HANGUL_V + s % 588 // 28)
    return (*first, HANGUL_T + s % 28) if s % 28 else first


def _lines(name: str) -> list[str]:
    text = (resources.files("shardpiece.text") / "data" / name).read_text(encoding="ascii")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def _sections() -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for line in _lines("normalization_sets.txt"):
        if line.startswith("["):
            current = found.setdefault(line[1:-1].split(":")[0], [])
        else:
            current.append(line)
    return {name: " ".join(lines) for name, lines in found.items()}


@cache
def members(name: str) -> np.ndarray:
    """One of the frozen sets: bool over the code points."""
    result = np.zeros(CODE_POINTS, bool)
    for word in _sections()[name].split():
        first, _, last = word.partition("-")
        result[int(first, 16) : int(last or first, 16) + 1] = True
    result.flags.writeable = False
    return result


def _mapping(name: str) -> dict[int, int]:
    result = {}
    for word in _sections()[name].split():
        sign = max(word.find("+"), word.rfind("-") if "+" not in word else -1)
        source, distance = word[:sign], int(word[sign:])
        codes, _, step = source.partition("/")
        first, _, last = codes.partition("-")
        result.update({c: c + distance for c in range(int(first, 16), int(last or first, 16) + 1, int(step or 1))})
    return result


@cache
def lowercase() -> dict[int, str]:
    """Character by character, as Rust's char::to_lowercase: a final sigma is like any other."""
    return {0x130: "i\u0307"} | {c: chr(t) for c, t in _mapping("lower").items()}


@cache
def simple_folding() -> dict[str, str]:
    return {chr(c): chr(t) for c, t in _mapping("fold").items()}


@cache
def combining_classes() -> dict[int, int]:
    result = {}
    for name in _sections():
        if name.startswith("class "):
            result.update(dict.fromkeys(np.flatnonzero(members(name)).tolist(), int(name[6:])))
    return result


@cache
def decompositions(compatibility: bool, newer: bool) -> dict[int, tuple[int, ...]]:
    """Full decompositions in canonical order, Hangul syllables not among them; ``newer`` with those after Unicode 9."""
    single = {}
    for line in _lines("decompositions.txt"):
        source, *targets = line.split()
        if ("~" in source and not compatibility) or ("*" in source and not newer):
            continue
        single[int(source.rstrip("~*"), 16)] = tuple(int(t, 16) for t in targets)
    classes = combining_classes()

    @cache
    def full(c: int) -> tuple[int, ...]:
        return tuple(d for t in single[c] for d in full(t)) if c in single else (c,)

    return {c: tuple(ordered(full(c), classes)) for c in single}


def ordered(codes, classes: dict[int, int]) -> list[int]:
    """Canonical ordering: runs of marks sorted by their class, stably."""
    result: list[int] = []
    run: list[int] = []
    for c in codes:
        if classes.get(c, 0):
            run.append(c)
        else:
            result += sorted(run, key=classes.__getitem__)
            result.append(c)
            run = []
    return result + sorted(run, key=classes.__getitem__)


@cache
def compositions(newer: bool) -> dict[tuple[int, int], int]:
    """Primary composites: (first, second) → character, Hangul not among them."""
    classes = combining_classes()
    result = {}
    for line in _lines("decompositions.txt"):
        source, *targets = line.split()
        if "~" in source or ("*" in source and not newer) or len(targets) != 2:
            continue
        c, first, second = (int(t.rstrip("*"), 16) for t in (source, *targets))
        excluded = c in _COMPOSITION_EXCLUSIONS or classes.get(c, 0) or classes.get(first, 0)
        if not excluded:
            result[first, second] = c
    return result


def compose(codes: list[int], newer: bool) -> list[int]:
    """Canonical composition of a decomposed sequence."""
    pairs, classes = compositions(newer), combining_classes()
    result = codes[:1]
    starter = 0 if codes and not classes.get(codes[0], 0) else -1
    last = -1
    for c in islice(codes, 1, None):
        k = classes.get(c, 0)
        if starter >= 0 and last < k and (last < 0 or k):
            a = result[starter]
            made = pairs.get((a, c))
            if made is None and HANGUL_L <= a < HANGUL_L + 19 and HANGUL_V <= c < HANGUL_V + 21:
                made = HANGUL + ((a - HANGUL_L) * 21 + c - HANGUL_V) * 28
            if made is None and HANGUL <= a < HANGUL_END and not (a - HANGUL) % 28 and HANGUL_T < c < HANGUL_T + 28:
                made = a + c - HANGUL_T
            if made is not None:
                result[starter] = made
                continue
        if k:
            last = k
        else:
            starter, last = len(result), -1
        result.append(c)
    return result


# CompositionExclusions.txt: stable but for characters that Unicode has yet to add.
_COMPOSITION_EXCLUSIONS = frozenset([
    *range(0x958, 0x960), 0x9DC, 0x9DD, 0x9DF, 0xA33, 0xA36, 0xA59, 0xA5A, 0xA5B, 0xA5E, 0xB5C, 0xB5D, 0xF43, 0xF4D,
    0xF52, 0xF57, 0xF5C, 0xF69, 0xF76, 0xF78, 0xF93, 0xF9D, 0xFA2, 0xFA7, 0xFAC, 0xFB9, 0x2ADC, 0xFB1D, 0xFB1F,
    *range(0xFB2A, 0xFB37), *range(0xFB38, 0xFB3D), 0xFB3E, 0xFB40, 0xFB41, 0xFB43, 0xFB44, *range(0xFB46, 0xFB4F),
    *range(0x1D15E, 0x1D165), *range(0x1D1BB, 0x1D1C1),
])  # fmt: skip
