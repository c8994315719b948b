"""Precompiled charsmaps: SentencePiece's normalization rules as one blob, as models and tokenizer.json files hold them.

    u32 size of the trie in bytes | double array of u32 units | targets, each ended by a zero byte

A rule maps a source of one or more characters to a target. Blobs are checked when they are read: whatever a trie holds,
a value that it can reach begins a target. Names give SentencePiece's own rules, see ``charsmap_rules``.
"""

import base64
import binascii
from functools import cache, cached_property

import numpy as np

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.normalization import charsmap_check_kernels as check
from shardpiece.text.normalization import charsmap_kernels as k
from shardpiece.text.normalization import frozen_data
from shardpiece.text.normalization.charsmap_build_kernels import build_double_array
from shardpiece.text.normalization.frozen_data import CODE_POINTS, HANGUL, HANGUL_END
from shardpiece.text.normalization.tables import frozen, two_stages

# No published charsmap has a tenth of this.
MAX_RULES = 4_000_000


class Charsmap:
    """``units``: uint32; ``targets``: uint8, ending with a zero. Equal blobs make equal charsmaps."""

    def __init__(self, units: np.ndarray, targets: bytes):
        self.units = frozen(units)
        self.targets = np.frombuffer(targets + b"\0", np.uint8)
        self._blob = b"".join([(4 * len(units)).to_bytes(4, "little"), units.astype("<u4").tobytes(), targets])
        self._check(targets)

    @classmethod
    def from_bytes(cls, blob: bytes) -> "Charsmap":
        """The charsmap of a SentencePiece model's normalizer_spec; an empty blob has no rules. Raises FormatError."""
        if not blob:
            return cls(np.empty(0, np.uint32), b"")
        size = int.from_bytes(blob[:4], "little")
        if len(blob) < 4 or size % 4 or 4 + size > len(blob):
            raise FormatError(f"charsmap: a trie of {size:,} bytes in a blob of {len(blob):,} bytes")
        return cls(np.frombuffer(blob[4 : 4 + size], "<u4").astype(np.uint32), blob[4 + size :])

    @classmethod
    def from_base64(cls, text: str) -> "Charsmap":
        try:
            return cls.from_bytes(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError, TypeError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"charsmap: not base64 ({error})") from None

    @classmethod
    def from_mapping(cls, mapping: dict[str, str]) -> "Charsmap":
        """Compile rules {source: target}. Raises ConfigError for an empty source or a zero character."""
        texts: dict[str, int] = {}
        targets = bytearray()
        rules = []
        for source, target in mapping.items():
            if not source or "\0" in source or "\0" in target:
                raise ConfigError(f"charsmap: the rule {source!r} → {target!r} has an empty source or a zero character")
            if len(source.encode(errors="replace")) > check.MAX_SOURCE:
                raise ConfigError(f"charsmap: the source {source[:20]!r}... has more than {check.MAX_SOURCE} bytes")
            try:
                if target not in texts:
                    texts[target] = len(targets)
                    targets += target.encode() + b"\0"
                rules.append((source.encode(), texts[target]))
            except UnicodeEncodeError:
                raise ConfigError(f"charsmap: the rule {source!r} → {target!r} has a surrogate") from None
        return cls(double_array(rules), bytes(targets))

    def _check(self, targets: bytes) -> None:
        try:
            targets.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"charsmap: the targets are not UTF-8 (byte {error.start})") from None
        values = np.empty(max(len(self.units), 1), np.int64)
        count = check.find_values(self.units, values)
        if count == check.DAMAGED:
            raise FormatError("charsmap: the trie is damaged (a source leads to no value, or has no end)")
        values = values[:count]
        if count and (values.max() > len(targets) or ((self.targets[values] & 0xC0) == 0x80).any()):
            raise FormatError("charsmap: the trie is damaged (a value lies outside the targets)")

    def to_bytes(self) -> bytes:
        return self._blob if len(self.units) else b""

    def to_base64(self) -> str:
        return base64.b64encode(self.to_bytes()).decode()

    def mapping(self) -> dict[str, str]:
        """The rules, {source: target}. Raises FormatError when a damaged trie spells more than MAX_RULES."""
        result: dict[str, str] = {}
        if not len(self.units):
            return result
        units, n = self.units.tolist(), len(self.units)
        padded = np.full(n + 512, k.NO_UNIT, np.uint32)
        padded[:n] = self.units
        labels = np.arange(1, 256)
        targets = self.targets.tobytes()

        def children(unit: int) -> int:
            return (unit >> 10) << ((unit & 0x200) >> 6)

        @cache
        def edges(block: int) -> list[tuple[bytes, int, int | None]]:
            """(label, block below, value) of the children; blocks are shared."""
            found: list[tuple[bytes, int, int | None]] = []
            if block >= n + 256:
                return found
            for b in labels[padded[block ^ labels] & k.LABEL_MASK == labels].tolist():
                unit = units[block ^ b]
                below = block ^ b ^ children(unit)
                has_value = unit & 0x100 and below < n
                found.append((bytes([b]), below, units[below] & k.VALUE_MASK if has_value else None))
            return found

        steps = 0
        stack = [(b"", children(units[0]))]
        while stack:
            source, block = stack.pop()
            for label, below, value in edges(block):
                steps += 1
                if steps > 4 * MAX_RULES:
                    raise FormatError("charsmap: the trie is damaged (its rules have no end)")
                longer = source + label
                stack.append((longer, below))
                if value is not None:
                    try:
                        text = longer.decode()
                    except UnicodeDecodeError:
                        continue  # in the middle of a character, where no rule counts
                    result[text] = targets[value : targets.index(0, value)].decode()
        return result

    def plain(self, alone: bool) -> np.ndarray:
        """uint8 [256]: the one ASCII byte that an ASCII byte becomes before another ASCII byte; 0xFF where it becomes
        something else or, unless only single characters are looked up (``alone``), where longer sources begin."""
        is_source, goes_on = check.first_bytes(self.units).T.astype(bool)
        plain = np.full(256, 0xFF, np.uint8)
        for b in range(128):
            raw = np.array([b], np.uint8)
            value = int(k.shortest_rule(self.units, frozen(raw), 0, 1)) if is_source[b] else -1
            target = self.targets[value : value + 2].tolist() if value >= 0 else [b, 0]
            if 0 < target[0] < 128 and target[1] == 0 and (alone or not goes_on[b]):
                plain[b] = target[0]
        if not is_source[0]:
            plain[0] = 0
        return plain

    def used_bytes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """bool [256] each: whether a source may begin with a byte, have it later, and go on behind it where it begins with
        it."""
        begins, later, goes_on = check.used_bytes(self.units).astype(bool)
        return begins, later, goes_on

    @cached_property
    def begins(self) -> np.ndarray:
        """bool over the code points: whether a source may begin with the character."""
        return check.first_characters(self.units) > 0

    @cached_property
    def source_characters(self) -> np.ndarray:
        """uint8 over the code points: what each character is to the sources, in the bits of ``charsmap_check_kernels``; all
        of them when the rules are too many to look through."""
        return check.source_characters(self.units, frozen(self.targets), 16 * MAX_RULES)

    def __eq__(self, other) -> bool:
        return isinstance(other, Charsmap) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())


def double_array(rules: list[tuple[bytes, int]]) -> np.ndarray:
    """The units of a trie with these sources and values."""
    if not rules:
        return np.empty(0, np.uint32)
    rules.sort()
    sources = [source for source, _ in rules]
    offsets = np.cumsum([0, *map(len, sources)], dtype=np.int64)
    keys = np.frombuffer(b"".join(sources), np.uint8)
    values = np.array([value for _, value in rules], np.int64)
    units = build_double_array(keys, frozen(offsets), frozen(values), max(map(len, sources)))
    if not len(units):
        raise ConfigError(f"charsmap: {len(rules):,} rules are too many for one trie")
    return units


def grapheme_classes() -> tuple[np.ndarray, np.ndarray]:
    """(pages, classes) for cutting graphemes; see ``charsmap_kernels``."""
    classes = np.zeros(CODE_POINTS, np.uint8)
    members = frozen_data.members
    classes[members("pictographic")] = k.PICTOGRAPHIC
    classes[members("joins")] = k.EXTEND
    classes[members("spacing")] = k.SPACING
    classes[members("prepends")] = k.PREPEND
    classes[members("breaks")] = k.CONTROL
    for first, last, kind in ((0x1100, 0x115F, k.JAMO_L), (0x1160, 0x11A7, k.JAMO_V), (0x11A8, 0x11FF, k.JAMO_T)):
        classes[first : last + 1] = kind
    for first, last, kind in ((0xA960, 0xA97C, k.JAMO_L), (0xD7B0, 0xD7C6, k.JAMO_V), (0xD7CB, 0xD7FB, k.JAMO_T)):
        classes[first : last + 1] = kind
    classes[HANGUL:HANGUL_END] = k.SYLLABLE_LVT
    classes[HANGUL:HANGUL_END:28] = k.SYLLABLE_LV
    classes[np.isin(classes, (k.EXTEND, k.SPACING, k.JAMO_V, k.JAMO_T))] |= k.JOINS
    classes[members("conjunct_consonant")] |= k.CONSONANT
    classes[members("conjunct_linker")] |= k.LINKER
    classes[members("conjunct_stop")] |= k.STOPS_CONJUNCT
    return two_stages(classes)
