"""Sets of code points: general categories and the like, frozen at the Unicode version of the reference libraries.

A set is a bool array over the 0x110000 code points, surrogates never among them. Two libraries in one environment do not
agree on what a letter is: ``regex`` follows Unicode within weeks, tiktoken and Hugging Face tokenizers within years. What
counts is what they do when they load the tokenizer, so ``data/unicode.txt`` holds the sets as these two have them (they
agree on every code point: Unicode 16.0), and the installed ``regex`` is asked only for properties that are not in
there, less the code points that Unicode 16.0 has not assigned. Python's ``unicodedata`` is never asked.
"""

from functools import cache, lru_cache
from importlib import resources

import numpy as np
import regex

CODE_POINTS = 0x110000
UNICODE_VERSION = "16.0"

_LONG_NAMES = {
    "letter": "L", "uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt", "modifierletter": "Lm",
    "otherletter": "Lo", "mark": "M", "nonspacingmark": "Mn", "spacingmark": "Mc", "enclosingmark": "Me",
    "number": "N", "decimalnumber": "Nd", "letternumber": "Nl", "othernumber": "No", "punctuation": "P",
    "symbol": "S", "separator": "Z", "other": "C", "unassigned": "Cn", "control": "Cc", "format": "Cf",
    "privateuse": "Co",
}  # fmt: skip


def empty() -> np.ndarray:
    return np.zeros(CODE_POINTS, bool)


def complement(members: np.ndarray) -> np.ndarray:
    result = ~members
    result[0xD800:0xE000] = False
    return result


def from_code_points(code_points) -> np.ndarray:
    result = empty()
    result[list(code_points)] = True
    return result


def from_range(first: int, last: int) -> np.ndarray:
    """The code points from ``first`` to ``last``, both included."""
    result = empty()
    result[first : last + 1] = True
    result[0xD800:0xE000] = False
    return result


@cache
def _table() -> dict[str, str]:
    """Name of each frozen set → its ranges, as text."""
    text = resources.files("shardpiece.text").joinpath("data/unicode.txt").read_text(encoding="ascii")
    return dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith("#"))


@cache
def frozen(name: str) -> np.ndarray:
    """A set of the table by its name there: a general category (``Lu``), ``space``, ``word``, ``hf_numeric``, …"""
    result = empty()
    for part in _table()[name].split():
        first, _, last = part.partition("-")
        result[int(first, 16) : int(last or first, 16) + 1] = True
    result.flags.writeable = False
    return result


@cache
def onig_word(in_class: bool) -> np.ndarray:
    """What Oniguruma takes for characters of words: not the joiners, but, where the pattern has no brackets around, six
    superscripts and fractions of Latin-1."""
    result = frozen("word").copy()
    result[[0x200C, 0x200D]] = False
    if not in_class:
        result[[0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE]] = True
    result.flags.writeable = False
    return result


def scripts() -> list[np.ndarray]:
    """The sets of code points that ``UnicodeScripts`` of Hugging Face keeps together."""
    return [frozen(name) for name in _table() if name.startswith("script")]


def members(name: str) -> np.ndarray:
    """The code points with a property, named as in ``\\p{name}``, or with hf_ a set of that library. Raises ValueError for what
    ``regex`` does not know."""
    if name in ("hf_word", "hf_class_word"):
        return onig_word(name == "hf_class_word")
    if name.startswith("hf_"):
        return frozen(name)
    key = name.replace("_", "").replace(" ", "").replace("-", "").lower()
    for prefix in ("generalcategory=", "gc=", "category="):
        key = key.removeprefix(prefix)
    wanted = _LONG_NAMES.get(key, key[:1].upper() + key[1:])
    cased = ("Lu", "Ll", "Lt") if wanted in ("Lc", "Casedletter") else ()
    categories = cased or [name for name in _table() if len(name) == 2 and wanted in (name, name[0])]
    if categories:
        return np.logical_or.reduce([frozen(category) for category in categories])
    if key in ("whitespace", "space"):
        return frozen("space")
    return asked(rf"\p{{{name}}}") & ~frozen("Cn")


@cache
def _all_text() -> str:
    return "".join(map(chr, (*range(0xD800), *range(0xE000, CODE_POINTS))))


@lru_cache(64)
def asked(expression: str) -> np.ndarray:
    """The code points that a one-character expression matches for the installed ``regex``."""
    try:
        found = "".join(regex.findall(f"(?:{expression})+", _all_text()))
    except regex.error as error:
        raise ValueError(str(error)) from None
    result = empty()
    result[np.frombuffer(found.encode("utf-32-le"), np.uint32)] = True
    result.flags.writeable = False
    return result


def caseless(expression: str, exact: np.ndarray) -> np.ndarray:
    """The code points that ``expression`` matches without regard to case: what ``regex`` says of those that the frozen
    version has assigned, else the ``exact`` ones."""
    return np.where(frozen("Cn"), exact, asked(f"(?i:{expression})"))
