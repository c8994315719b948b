"""Patterns spelled for Oniguruma, which splits and replaces in Hugging Face tokenizers.

Its syntax is Ruby's, and its ``\\w``, ``$``, ``{1,3}+`` and more mean something else than in the ``regex`` module. What our
parser understands is written out anew from the parsed tree, classes as the ranges of the frozen sets.
"""

import re
from functools import lru_cache

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.text import patterns, regex_syntax
from shardpiece.text.regex_syntax import UnsupportedPattern
from shardpiece.tokenizer.formats.oniguruma_read import FOR_REGEX, translated

# These have been compared as they are, on every code point.
_PUBLISHED = frozenset(
    {*patterns.PATTERNS.values(), *patterns.DEEPSEEK_V3, patterns.NUMBER_GROUPS, patterns.WORD, patterns.CHARACTER}
)
# What means something else there, or nothing.
_DIFFERS = re.compile(
    r"\\[bBwWhHgGkKmMNrRuUxXyYZzL]|\\p[^{]|\\p\{[^}]*[=&]|\\p\{Is|\(\?[^:=!<>|)]*[a-zA-Z][^:)]*[:)]|\(\?P|\(\*|\[\[:|&&|--|\|\||~~|"
    r"\^|\$|\}\+|\{[eisd<>=]|\(\?~",
)


# What ``oniguruma_read`` writes anew, and how it stood there.
_WRITTEN_ANEW = (
    (r"\p{hf_word}", r"\w"), (r"\P{hf_word}", r"\W"), (r"\p{hf_class_word}", r"\w"), (r"\P{hf_class_word}", r"\W"),
    *((ours, theirs) for words in FOR_REGEX for ours, theirs in zip(words, (r"\w", r"\W"), strict=True)),
    ("(?V1)", ""), ("(?s:", "(?m:"), ("(?is:", "(?im:"),
)  # fmt: skip


@lru_cache(64)
def spelled(pattern: str, for_regex: bool = False) -> str:
    """The pattern as Oniguruma reads it alike, and as it stands there when it was read from there. ``for_regex``: whether
    the ``regex`` module runs it. Raises FormatError naming what has no equal there."""
    if pattern in _PUBLISHED:
        return pattern
    original = pattern
    for ours, theirs in _WRITTEN_ANEW:
        original = original.replace(ours, theirs)
    for text in (pattern, original):
        try:
            if translated(text, for_regex) == pattern:
                return text
        except FormatError:
            pass
    try:
        return _text(regex_syntax.parse(pattern))
    except UnsupportedPattern as error:
        shown = pattern if len(pattern) < 60 else f"{pattern[:57]}..."
        if found := _DIFFERS.search(pattern):
            raise FormatError(
                f"the pattern {shown} cannot be written into tokenizer.json: {error}, and Hugging Face's library reads "
                f"{found[0]} in another way"
            ) from None
    return pattern


def _text(node: regex_syntax.Node) -> str:
    match node:
        case regex_syntax.Chars():
            return _chars(node.members)
        case regex_syntax.Sequence():
            return "".join(map(_text, node.parts))
        case regex_syntax.Choice():
            return f"(?:{'|'.join(map(_text, node.parts))})"
        case regex_syntax.LookAhead():
            return f"(?{'!' if node.negative else '='}{_chars(node.members)})"
        case regex_syntax.End():
            return r"\z"
        case regex_syntax.Repeat():
            part, low, high = f"(?:{_text(node.part)})", node.low, node.high
            if isinstance(node.part, regex_syntax.Chars):
                part = _text(node.part)
            count = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(
                (low, high), f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
            )
            if node.kind == "possessive":
                return f"(?>{part}{count})"
            # There, {n}? is an optional {n}.
            return f"(?:{part}{count}{'?' if node.kind == 'lazy' and low != high else ''})"
    raise AssertionError(node)


def _chars(members: np.ndarray) -> str:
    inside = _ranges(members)
    outside = _ranges(~members)
    if not inside:
        return "(?!)"
    if len(inside) == 1 and inside[0][0] == inside[0][1]:
        return _character(inside[0][0])
    shorter, sign = (outside, "^") if len(outside) < len(inside) else (inside, "")
    if not shorter:
        return r"[\s\S]"
    parts = [_character(a) if a == b else f"{_character(a)}-{_character(b)}" for a, b in shorter]
    return f"[{sign}{''.join(parts)}]"


def _ranges(members: np.ndarray) -> list[tuple[int, int]]:
    """First and last code point of each run; surrogates, which no text has, join what is on both sides of them."""
    edges = np.flatnonzero(np.diff(members, prepend=False, append=False)).reshape(-1, 2)
    found = [(a, b - 1) for a, b in edges.tolist() if not (a >= 0xD800 and b <= 0xE000)]
    clipped = []
    for a, b in found:
        if clipped and clipped[-1][1] == 0xD7FF and a == 0xE000:
            clipped[-1] = (clipped[-1][0], b)
        else:
            clipped.append((0xE000 if 0xD800 <= a < 0xE000 else a, 0xD7FF if 0xD800 <= b < 0xE000 else b))
    return [(a, b) for a, b in clipped if a <= b]


def _character(code_point: int) -> str:
    c = chr(code_point)
    return c if c.isascii() and c.isalnum() else rf"\x{{{code_point:X}}}"
