"""The tables that the kernels of ``character_kernels`` walk, made of the frozen data of ``frozen_data``.

A table over the code points has two stages: pages of 256 values, of which equal ones are kept once. Every table is
complete: each code point has a page and each value names something that exists, so no text leads out of bounds.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from shardpiece.text.normalization import frozen_data
from shardpiece.text.normalization.character_kernels import SURROUND, SYLLABLES
from shardpiece.text.normalization.frozen_data import CODE_POINTS, HANGUL, HANGUL_END, HANGUL_T, HANGUL_V


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def two_stages(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(pages, values) of an array over the code points."""
    blocks = values.reshape(-1, 256)
    places: dict[bytes, int] = {}
    pages = np.array([places.setdefault(block.tobytes(), len(places)) for block in blocks], np.uint16)
    return frozen(pages), np.frombuffer(b"".join(places), values.dtype)


@dataclass(frozen=True)
class CharacterMap:
    """What ``map_characters`` takes; see there."""

    ascii_map: np.ndarray
    pages: np.ndarray
    values: np.ndarray
    target_offsets: np.ndarray
    targets: np.ndarray

    def over_code_points(self) -> np.ndarray:
        """int32 [code points]: the value of each character."""
        return self.values.reshape(-1, 256)[self.pages].reshape(-1)

    @classmethod
    def of(cls, mapping: dict[int, str], removed: np.ndarray | None = None, surrounded=()) -> "CharacterMap":
        """``removed``: a set of characters that become nothing; ``surrounded``: ranges that get spaces around them."""
        values = np.zeros(CODE_POINTS, np.int32)
        for first, last in surrounded:
            values[first : last + 1] = SURROUND
        texts = {"": 1}
        for c, text in mapping.items():
            values[c] = texts.setdefault(text, len(texts) + 1)
        if removed is not None:
            values[removed] = 1
        encoded = [text.encode() for text in texts]
        ascii_map = np.full(128, 0xFF, np.uint8)
        for c in range(128):
            target = bytes([c]) if values[c] == 0 else encoded[values[c] - 1]
            if len(target) == 1:
                ascii_map[c] = target[0]
        target_offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        targets = np.frombuffer(b"".join(encoded), np.uint8)
        return cls(frozen(ascii_map), *two_stages(values), frozen(target_offsets), targets)


@dataclass(frozen=True)
class Form:
    """What ``decompose_documents`` takes; see there. Row 0 is of the characters that nothing happens to, row 1 of the
    Hangul syllables; the others list what a character decomposes to, itself if nothing else."""

    pages: np.ndarray
    rows: np.ndarray
    stable: np.ndarray
    row_offsets: np.ndarray
    row_codes: np.ndarray
    row_classes: np.ndarray
    compose: bool
    pairs: np.ndarray
    composites: np.ndarray


@cache
def form(name: str) -> Form:
    """nfc, nfd, nfkc or nfkd of Unicode 9.0. Characters unknown to it are inert: they neither change nor combine, so
    that the text on their two sides is normalized apart."""
    composing, compatibility = name.endswith("c"), "k" in name
    classes = frozen_data.combining_classes()
    full = frozen_data.decompositions(compatibility, newer=False)
    pairs = dict(sorted(frozen_data.compositions(newer=False).items()))
    seconds = {second for _, second in pairs}
    jamo = {*range(HANGUL_V, HANGUL_V + 21), *range(HANGUL_T + 1, HANGUL_T + 28)}

    def is_stable(c: int, codes: tuple[int, ...]) -> bool:
        if classes.get(c, 0) or not composing:
            return False
        if c in seconds or c in jamo or classes.get(codes[0], 0) or codes[0] in seconds or codes[0] in jamo:
            return False
        return frozen_data.compose(list(codes), newer=False) == [c]

    rows = np.zeros(CODE_POINTS, np.int32)
    rows[HANGUL:HANGUL_END] = SYLLABLES
    listed = sorted({*full, *classes} | ((seconds | jamo) if composing else set()))
    expansions = [full.get(c, (c,)) for c in listed]
    rows[listed] = np.arange(2, len(listed) + 2)
    stable = [False, composing, *map(is_stable, listed, expansions)]
    codes = [c for expansion in expansions for c in expansion]
    pages, values = two_stages(rows)
    return Form(
        pages,
        values,
        frozen(np.array(stable)),
        frozen(np.cumsum([0, 0, 0, *map(len, expansions)], dtype=np.int64)),
        frozen(np.array(codes, np.int32)),
        frozen(np.array([classes.get(c, 0) for c in codes], np.uint8)),
        composing,
        frozen(np.array([first << 21 | second for first, second in pairs], np.int64)),
        frozen(np.array(list(pairs.values()), np.int32)),
    )


@cache
def lowercase() -> CharacterMap:
    return CharacterMap.of(frozen_data.lowercase())


@cache
def strip_accents() -> CharacterMap:
    return CharacterMap.of({}, frozen_data.members("combining_marks"))


@cache
def nmt() -> CharacterMap:
    return CharacterMap.of(dict.fromkeys(frozen_data.NMT_REMOVED, "") | dict.fromkeys(frozen_data.NMT_SPACES, " "))


@cache
def bert_before(clean: bool, chinese: bool, lower: bool) -> CharacterMap:
    """The steps of BertNormalizer before accents are looked for, and lowercasing where they are not."""
    mapping = dict(frozen_data.lowercase()) if lower else {}
    removed = None
    if clean:
        removed = frozen_data.members("controls")
        mapping |= {c: " " for c in frozen_data.WHITESPACE if not removed[c]}
    return CharacterMap.of(mapping, removed, frozen_data.CHINESE if chinese else ())


@cache
def bert_after(lower: bool) -> CharacterMap:
    """Nonspacing marks removed after NFD, and lowercasing."""
    return CharacterMap.of(frozen_data.lowercase() if lower else {}, frozen_data.members("nonspacing_marks"))


@cache
def bert_at_once(clean: bool, chinese: bool, lower: bool) -> CharacterMap:
    """All steps of a BertNormalizer that strips accents, character by character. That is exact where no mark remains
    that could change places with another one; see ``bert_keeps_marks``."""
    nonspacing = frozen_data.members("nonspacing_marks")
    lowercase = frozen_data.lowercase() if lower else {}
    full = frozen_data.decompositions(compatibility=False, newer=False)
    mapping = {}
    for c in {*full, *lowercase, *range(HANGUL, HANGUL_END)}:
        codes = full.get(c) or (frozen_data.hangul_jamo(c) if HANGUL <= c < HANGUL_END else (c,))
        mapping[c] = "".join(lowercase.get(d, chr(d)) for d in codes if not nonspacing[d])
    removed = nonspacing
    if chinese:
        for first, last in frozen_data.CHINESE:
            mapping |= {c: f" {text} " for c, text in mapping.items() if first <= c <= last}
    if clean:
        controls = frozen_data.members("controls")
        removed = removed | controls
        mapping |= {c: " " for c in frozen_data.WHITESPACE if not controls[c]}
    return CharacterMap.of(mapping, removed, frozen_data.CHINESE if chinese else ())


@cache
def bert_keeps_marks() -> CharacterMap:
    """A map that changes the characters whose decomposition has a combining mark that is not nonspacing to the old
    table of BertNormalizer: only with these does the order of marks matter."""
    nonspacing = frozen_data.members("nonspacing_marks")
    classes = frozen_data.combining_classes()
    full = frozen_data.decompositions(compatibility=False, newer=False)
    kept = [c for c in {*full, *classes} if any(d in classes and not nonspacing[d] for d in full.get(c, (c,)))]
    return CharacterMap.of(dict.fromkeys(kept, ""))
