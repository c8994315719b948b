"""Sets of code points, as the ``regex`` module defines its classes, properties and case folding.

A set is a bool array over the 0x110000 code points, surrogates never among them. The installed ``regex`` is asked once
for each property; compiled patterns are stored with the tables that came out, so that another version cannot change
them later.
"""

from functools import cache

import numpy as np
import regex

CODE_POINTS = 0x110000


@cache
def _all_text() -> str:
    return "".join(map(chr, (*range(0xD800), *range(0xE000, CODE_POINTS))))


@cache
def members(expression: str) -> np.ndarray:
    """The code points that a one-character regular expression matches, such as ``\\p{L}`` or ``(?i:[a-c])``."""
    found = "".join(regex.findall(f"(?:{expression})+", _all_text()))
    result = np.zeros(CODE_POINTS, bool)
    result[np.frombuffer(found.encode("utf-32-le"), np.uint32)] = True
    result.flags.writeable = False
    return result


@cache
def _cased_text() -> str:
    """Every character with a case mapping: only these can be equal to another one without regard to case."""
    return "".join(c for c in _all_text() if c.lower() != c or c.upper() != c or c.casefold() != c)


@cache
def caseless(character: str) -> frozenset[int]:
    """The code points that ``(?i:character)`` matches."""
    found = regex.findall(f"(?i:{regex.escape(character)})", _cased_text())
    return frozenset(map(ord, found)) | {ord(character)}


def from_code_points(code_points) -> np.ndarray:
    result = np.zeros(CODE_POINTS, bool)
    result[list(code_points)] = True
    return result
