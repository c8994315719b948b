"""Plain oracles: splits by the regex module, with the frozen Unicode sets written out where a pattern names them."""

import itertools
import re
from functools import cache

import numpy as np
import regex

from shardpiece.text import unicode_sets
from shardpiece.text.documents import Documents

ALL_CODE_POINTS = (*range(0xD800), *range(0xE000, 0x110000))
# Every border of classes, marks, joiners, right-to-left letters, apostrophes in both cases, line ends, unassigned code
# points, astral ones, and what Unicode has assigned since the frozen version.
ADVERSARIAL = (
    " \t\n\r\x0b\x0c\x1c\x85\u00a0\u1680\u2028\u2029\u3000'’sSdDmMtTlLvVeErRſK\u212a0129½²①\u0660\u0969Ⅷ"
    "aZéßǅʰªºŉİıΣσς中々〆\u3042\u30a2\u30fc\uff21한\u1100\u1161ا\u05d0\u0301\u0308\u0345\u20e3\u0903\u200c\u200d\u200e\ufe0f\ufeff"
    "😀\U0001f468\U0001d7d8\U00010400\U0001f1e6\U00016ebc\U000e0001\u0378\U000fffff\ue000\U0010ffff\ufffd\ufffe"
    "!/=^_-.,;:()[]{}<|>@#$%&*+~`\"\\\x00\x7f\u00ad£€▁"
)  # fmt: skip


@cache
def _ranges(name: str) -> str:
    members = unicode_sets.members(name) if name not in ("space", "word") else unicode_sets.frozen(name)
    edges = np.flatnonzero(np.diff(members, prepend=False, append=False))
    return "".join(rf"\U{a:08x}-\U{b - 1:08x}" for a, b in edges.reshape(-1, 2).tolist())


@cache
def frozen(pattern: str) -> "regex.Pattern":
    r"""The pattern for the regex module with \p{..}, \s, \S, \w as explicit ranges of the frozen sets."""
    out, in_class = [], False
    for part in re.findall(r"\\p\{\w+\}|\\.|\[\^?\]?|\]|.", pattern, re.DOTALL):
        ranges = None
        if part.startswith(r"\p"):
            ranges = _ranges(part[3:-1])
        elif part in (r"\s", r"\w", r"\S"):
            ranges = _ranges({"s": "space", "w": "word"}[part[1].lower()])
        if ranges is not None:
            negative = part == r"\S"
            if negative and in_class:
                out.append(part)
                continue
            out.append(ranges if in_class else f"[{'^' if negative else ''}{ranges}]")
            continue
        in_class = part.startswith("[") or (in_class and part != "]")
        out.append(part)
    return regex.compile("".join(out))


def words(pattern: "str | regex.Pattern", text: str) -> list[str]:
    """By finditer: matches, and what stands between them."""
    if isinstance(pattern, str):
        pattern = frozen(pattern)
    found, last = [], 0
    for match in pattern.finditer(text):
        for border in match.span():
            if border > last:
                found.append(text[last:border])
                last = border
    return [*found, text[last:]] if last < len(text) else found


def split(pretokenizer, texts: list[str]) -> list[list[str]]:
    """The words of each text as ours gives them, all texts in one batch."""
    return [[word.decode() for word in found] for found in pretokenizer.split(Documents.from_strings(texts)).to_list()]


def split_by(splitter, texts: list[str]) -> list[list[str]]:
    """The same for a Splitter alone."""
    documents = Documents.from_strings(texts)
    ends, document_ends = splitter.split(documents)
    raw = documents.data.tobytes()
    found = [raw[a:b].decode() for a, b in zip([0, *ends.tolist()], ends.tolist(), strict=False)]
    return [found[a:b] for a, b in itertools.pairwise([0, *document_ends.tolist()])]
