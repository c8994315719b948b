"""The steps that pre-tokenizers are made of. Each takes the words the one before has made and cuts them further, or
drops or adds text; the first one gets every document as one word."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import regex

from shardpiece.errors import ConfigError, DocumentError, ShardpieceWarning
from shardpiece.kernel_cache import read_only
from shardpiece.text import byte_alphabet, unicode_sets
from shardpiece.text import step_kernels as k
from shardpiece.text.classed import ClassedSplitter
from shardpiece.text.dfa import DEAD, DFA, START, compile_pattern
from shardpiece.text.documents import Documents, Words
from shardpiece.text.normalization.tables import CharacterMap
from shardpiece.text.regex_syntax import UnsupportedPattern
from shardpiece.text.splitter import Splitter
from shardpiece.text.user_patterns import check_text, matches

BEHAVIORS = ("isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next")
PREPENDS = ("never", "first", "always")
# Steps that are splits with another name: what the library is called that gave them, or what they are for.
SPLITS = ("split", "bert", "whitespace", "whitespace_split", "unicode_scripts", "digits", "punctuation")
_MERGES = {
    "contiguous": k.CONTIGUOUS,
    "merged_with_previous": k.MERGED_WITH_PREVIOUS,
    "merged_with_next": k.MERGED_WITH_NEXT,
}


@lru_cache(32)
def _made_ready(dfa: DFA) -> Splitter:
    """An automaton's splitter, made once for all steps that have it."""
    return Splitter(dfa)


@lru_cache(1)
def scripts_dfa() -> DFA:
    """Runs of one script, as ``UnicodeScripts`` of Hugging Face has them: a code point of no script goes with what
    stands before it, and with nothing at the front."""
    class_of = np.zeros(unicode_sets.CODE_POINTS, np.uint8)
    sets = unicode_sets.scripts()
    for i, members in enumerate(sets):
        class_of[members] = i + 1
    transitions = np.full((len(sets) + 2, len(sets) + 2), DEAD << 1 | 1, np.uint16)
    transitions[DEAD] = DEAD << 1
    transitions[START] = DEAD << 1
    for i in range(len(sets)):
        state = i + 2
        transitions[START, i + 1] = state << 1
        transitions[state, [0, i + 1]] = state << 1 | 1
    return DFA(class_of, transitions)


class SplitStep:
    """Cuts words at the matches of a pattern.

    ``behavior`` says what becomes of a match, as in ``Split`` of Hugging Face: it is a word ("isolated"), is dropped
    ("removed"), is one word with the matches beside it ("contiguous"), or belongs to the text before or behind it
    ("merged_with_previous", "merged_with_next"). ``invert`` swaps matches and the text between them. An empty match is
    a border between two words. The pattern is compiled to an automaton (``dfa``); where that cannot express it, the
    ``regex`` module splits, some twenty times slower, and a ShardpieceWarning names the construct.
    """

    def __init__(self, pattern: str, behavior: str = "isolated", invert: bool = False, kind: str = "split"):
        try:
            compiled = scripts_dfa() if kind == "unicode_scripts" else compile_pattern(pattern)
        except UnsupportedPattern as error:
            warnings.warn(
                f"pretokenizer: {error} cannot be compiled; the regex module splits instead, some twenty times slower",
                ShardpieceWarning,
                stacklevel=3,
            )
            compiled = None
        self._assemble(kind, pattern, behavior, invert, compiled, f"regex {regex.__version__}")

    def _assemble(self, kind, pattern, behavior, invert, dfa: DFA | None, version: str) -> None:
        if behavior not in BEHAVIORS:
            raise ConfigError(f"pretokenizer: behavior {behavior!r} is not one of {', '.join(BEHAVIORS)}")
        if not isinstance(invert, bool) or not isinstance(pattern, str):
            raise ConfigError(f"pretokenizer: invert {invert!r} is not true or false, or {pattern!r} is no pattern")
        self.kind, self.pattern, self.behavior, self.invert = kind, pattern, behavior, invert
        self.dfa = dfa
        if dfa is None:
            self._regex, self._version = regex.compile(pattern), version
        else:
            self._ascii_step = np.ascontiguousarray(dfa.transitions[:, dfa.class_of[:128]])

    @property
    def spec(self) -> dict:
        spec = {"type": self.kind, "pattern": self.pattern, "behavior": self.behavior, "invert": self.invert}
        if self.dfa is None:
            return {**spec, "engine": "regex", "unicode": self._version}
        return {**spec, "engine": "dfa", "tables": self.dfa.to_spec()}

    @classmethod
    def from_spec(cls, spec: dict) -> "SplitStep":
        self = cls.__new__(cls)
        check_text(spec["pattern"], "pretokenizer: the pattern")
        if spec["engine"] not in ("dfa", "regex") or spec["type"] not in SPLITS:
            raise ValueError(f"unknown engine {spec['engine']!r} or type {spec['type']!r}")
        dfa = DFA.from_spec(spec["tables"]) if spec["engine"] == "dfa" else None
        version = spec.get("unicode", "")
        self._assemble(spec["type"], spec["pattern"], spec["behavior"], spec["invert"], dfa, version)
        if dfa is None and version != f"regex {regex.__version__}":
            warnings.warn(
                f"pretokenizer: split by {version} when it was made, by regex {regex.__version__} now: "
                f"characters that Unicode has changed in between may be split differently",
                ShardpieceWarning,
                stacklevel=3,
            )
        return self

    @cached_property
    def _splitter(self) -> Splitter:
        return _made_ready(self.dfa)

    @cached_property
    def _classed(self) -> ClassedSplitter | None:
        return self.classed()

    def classed(self, *maps: CharacterMap | None) -> ClassedSplitter | None:
        """This step, and a normalizer before it (see ClassedSplitter), in one pass; None where there is no such way."""
        return ClassedSplitter.of(self.dfa, self.invert, *maps) if self.dfa and self.behavior == "removed" else None

    def apply(self, words: Words) -> Words:
        offsets = np.empty(len(words.ends) + 1, np.int64)
        offsets[0], offsets[1:] = words.start, words.ends
        offsets.flags.writeable = False
        pieces = Documents(words.data, offsets)
        if self._classed is not None:
            data, ends, piece_ends = self._classed.split(pieces)
            at_start = _still_at_start(words, words.document_ends, self._classed.begins_with_word(pieces))
            return Words(data, 0, ends, _regrouped(words, piece_ends), at_start)
        matched = None
        try:
            if self.dfa is None:
                ends, piece_ends, matched = self._split_by_regex(pieces)
            else:
                ends, piece_ends = self._splitter.split(pieces)
        except DocumentError as error:
            raise DocumentError(_document_of(words, error.index), error.problem) from None
        if self.behavior == "isolated":
            return replace(words, ends=ends, document_ends=_regrouped(words, piece_ends))
        if matched is None:
            matched = self.matches(words, ends, piece_ends)
        if self.invert:
            matched = ~matched
        if self.behavior == "removed":
            return _without(words, ends, piece_ends, matched)
        n = k.merge_words(ends, piece_ends, matched, _MERGES[self.behavior], ends, piece_ends)
        return replace(words, ends=ends[:n], document_ends=_regrouped(words, piece_ends))

    def matches(self, words: Words, ends: np.ndarray, piece_ends: np.ndarray) -> np.ndarray:
        """Bool, which of the words that end at ``ends`` are matches and not what stands between two."""
        matched = np.empty(len(ends), bool)
        k.mark_matches(
            words.data,
            words.start,
            ends,
            piece_ends,
            self.dfa.class_of,
            self._ascii_step,
            self.dfa.transitions,
            matched,
        )
        return matched

    @property
    def label(self) -> str:
        """For people."""
        return self.kind if self.kind != "split" else self.pattern

    def _split_by_regex(self, pieces: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ends, words up to each piece, whether each word is a match)."""
        ends, matched = [np.empty(0, np.int64)], [np.empty(0, bool)]
        piece_ends = np.zeros(len(pieces), np.int64)
        total = 0
        for p in range(len(pieces)):
            start, end = int(pieces.offsets[p]), int(pieces.offsets[p + 1])
            piece_ends_at, piece_matched = self._borders(pieces.data[start:end], p)
            ends.append(piece_ends_at + start)
            matched.append(piece_matched)
            total += len(piece_matched)
            piece_ends[p] = total
        return np.concatenate(ends), piece_ends, np.concatenate(matched)

    def _borders(self, raw: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
        """Byte ends of the words of one piece, and which are matches."""
        text = raw.tobytes().decode()
        borders: list[int] = []
        matched: list[bool] = []
        last = 0
        for match in matches(self._regex, text, len(raw), p, "pre-tokenizer"):
            for border, inside in zip(match.span(), (False, True), strict=True):
                if border > last:
                    borders.append(border)
                    matched.append(inside)
                    last = border
        if last < len(text):
            borders.append(len(text))
            matched.append(False)
        # Byte offset at which each character begins, and the end.
        starts = np.append(np.flatnonzero((raw & 0xC0) != 0x80), len(raw))
        return starts[borders], np.array(matched, bool)


@dataclass(frozen=True)
class MetaspaceStep:
    """White space marked by a character, SentencePiece's way, as ``Metaspace`` of Hugging Face does it: spaces become
    ``replacement``, which is also put in front of every word ("always"), of the word that begins its document
    ("first") or of none ("never") unless it stands there; with ``split``, a word begins at every such character.

    "first" looks at normalized text: where a normalizer removes the beginning of a document, that library prepends
    nothing, and here what is left begins the document."""

    replacement: str = "▁"
    prepend: str = "always"
    split: bool = True
    kind = label = "metaspace"

    def __post_init__(self):
        if self.prepend not in PREPENDS:
            raise ConfigError(f"pretokenizer metaspace: prepend {self.prepend!r} is not one of {', '.join(PREPENDS)}")
        if not isinstance(self.replacement, str) or len(self.replacement) != 1:
            raise ConfigError(f"pretokenizer metaspace: replacement {self.replacement!r} is not one character")
        check_text(self.replacement, "pretokenizer metaspace: the replacement")
        if not isinstance(self.split, bool):
            raise ConfigError(f"pretokenizer metaspace: split is true or false, not {self.split!r}")

    @property
    def spec(self) -> dict:
        return {"type": self.kind, "replacement": self.replacement, "prepend": self.prepend, "split": self.split}

    @classmethod
    def from_spec(cls, spec: dict) -> "MetaspaceStep":
        return cls(spec["replacement"], spec["prepend"], spec["split"])

    def apply(self, words: Words) -> Words:
        mark = np.frombuffer(self.replacement.encode(), np.uint8)
        used = words.data[words.start : words.start + words.size]
        spaces = int(np.count_nonzero(used == 0x20))
        if not spaces and self.prepend == "never" and self.split:
            return self._split(words, mark)
        out = np.empty(words.size + (spaces + len(words.ends)) * len(mark), np.uint8)
        marks = spaces
        if self.split:
            marks += int(np.count_nonzero(used == mark[0]))
        out_ends = np.empty(len(words.ends) + marks, np.int64)
        document_ends = np.empty_like(words.document_ends)
        at_start = np.ones(len(document_ends), bool) if words.at_start is None else words.at_start
        n = k.mark_spaces(
            words.data, words.start, words.ends, words.document_ends, at_start,
            mark, PREPENDS.index(self.prepend), self.split, out, out_ends, document_ends,
        )  # fmt: skip
        return Words(_read_only(out[: out_ends[n - 1] if n else 0]), 0, out_ends[:n], document_ends, words.at_start)

    def _split(self, words: Words, mark: np.ndarray) -> Words:
        """What ``apply`` gives where nothing is put in."""
        used = words.data[words.start : words.start + words.size]
        ends = np.empty(len(words.ends) + int(np.count_nonzero(used == mark[0])), np.int64)
        document_ends = np.empty_like(words.document_ends)
        n = k.split_at_marks(
            read_only(words.data),
            words.start,
            read_only(words.ends),
            read_only(words.document_ends),
            mark,
            ends,
            document_ends,
        )
        return Words(words.data, words.start, ends[:n], document_ends, words.at_start)


@dataclass(frozen=True)
class ByteStep:
    """Every byte is a word."""

    kind = label = "byte"

    @property
    def spec(self) -> dict:
        return {"type": self.kind}

    @classmethod
    def from_spec(cls, spec: dict) -> "ByteStep":
        return cls()

    def apply(self, words: Words) -> Words:
        sizes = np.diff(words.ends, prepend=words.start)
        ends = np.arange(words.start + 1, words.start + words.size + 1)
        return replace(words, ends=ends, document_ends=_regrouped(words, np.cumsum(sizes)))


class DigitGroupsStep:
    """Numbers cut into groups of ``size`` digits counted from the right, as they are read: 1234567 is 1, 234 and 567.

    The regular expression for this looks ahead over the whole number at every digit; here its length is counted once.
    ``numbers``: the step that finds the numbers.
    """

    kind = label = "digit_groups"

    def __init__(self, numbers: SplitStep, size: int = 3):
        if type(size) is not int or not 1 <= size <= 1000:
            raise ConfigError(f"pretokenizer digit_groups: size {size!r} is not a number from 1 to 1000")
        if not isinstance(numbers, SplitStep) or numbers.dfa is None or numbers.behavior != "isolated":
            raise ConfigError("pretokenizer digit_groups: numbers are found by a compiled pattern, isolated")
        self.numbers, self.size = numbers, size

    @property
    def spec(self) -> dict:
        return {"type": self.kind, "size": self.size, "numbers": self.numbers.spec}

    @classmethod
    def from_spec(cls, spec: dict) -> "DigitGroupsStep":
        return cls(SplitStep.from_spec(spec["numbers"]), spec["size"])

    def apply(self, words: Words) -> Words:
        found = self.numbers.apply(words)
        matched = self.numbers.matches(found, found.ends, found.document_ends)
        sizes = np.diff(found.ends, prepend=found.start)
        ends = np.empty(len(matched) + int(sizes[matched].sum()), np.int64)
        document_ends = np.empty_like(found.document_ends)
        n = k.group_from_right(
            found.data, found.start, found.ends, found.document_ends, matched, self.size, ends, document_ends
        )
        return replace(found, ends=ends[:n], document_ends=document_ends)


@dataclass(frozen=True)
class ByteAlphabetStep:
    """Every byte as the character that GPT-2's alphabet has for it, and ``steps``, splits, applied to that text; with
    ``back``, bytes again in the end. This is what Hugging Face's ByteLevel does before other pre-tokenizers, which then cut
    inside of characters too, or before models whose vocabularies are texts of that alphabet."""

    steps: tuple[SplitStep, ...] = ()
    back: bool = True
    kind = label = "byte_alphabet"

    def __post_init__(self):
        if not all(isinstance(step, SplitStep) for step in self.steps) or not isinstance(self.back, bool):
            raise ConfigError("pretokenizer byte_alphabet: steps are splits, back is true or false")

    @property
    def spec(self) -> dict:
        return {"type": self.kind, "steps": [step.spec for step in self.steps], "back": self.back}

    @classmethod
    def from_spec(cls, spec: dict) -> "ByteAlphabetStep":
        return cls(tuple(SplitStep.from_spec(step) for step in spec["steps"]), spec["back"])

    def apply(self, words: Words) -> Words:
        raw = words.data[words.start : words.start + words.size]
        to_ends = byte_alphabet.spelled_ends(raw)
        data = _read_only(byte_alphabet.spell_array(raw, to_ends))
        words = Words(data, 0, to_ends[words.ends - words.start], words.document_ends, words.at_start)
        for step in self.steps:
            words = step.apply(words)
        if not self.back:
            return words
        raw, to_ends = byte_alphabet.unspell_array(words.data[words.start : words.start + words.size])
        return Words(_read_only(raw), 0, to_ends[words.ends - words.start], words.document_ends, words.at_start)


Step = SplitStep | MetaspaceStep | ByteStep | DigitGroupsStep | ByteAlphabetStep


def step_from_spec(spec: dict) -> Step:
    """Raises KeyError, TypeError or ValueError for a damaged one."""
    kinds = {step.kind: step for step in (MetaspaceStep, ByteStep, DigitGroupsStep, ByteAlphabetStep)}
    return kinds.get(spec["type"], SplitStep).from_spec(spec)


def whole_documents(documents: Documents, at_start: np.ndarray | None = None) -> Words:
    """Every document as one word, empty ones as none."""
    ends = documents.offsets[1:].copy()  # kernels are compiled for ends that can be written to
    kept = np.diff(documents.offsets) > 0
    if not kept.all():
        ends = ends[kept]
    return Words(documents.data, int(documents.offsets[0]), ends, np.cumsum(kept), at_start)


def _regrouped(words: Words, piece_ends: np.ndarray) -> np.ndarray:
    """Words up to each document, from the words up to each piece."""
    return np.append(0, piece_ends)[words.document_ends]


def _document_of(words: Words, piece: int) -> int:
    return int(np.searchsorted(words.document_ends, piece, side="right"))


def _without(words: Words, ends: np.ndarray, piece_ends: np.ndarray, dropped: np.ndarray) -> Words:
    document_ends = _regrouped(words, piece_ends)
    out, out_ends = np.empty(words.size, np.uint8), np.empty(len(ends), np.int64)
    out_document_ends = np.empty_like(document_ends)
    n = k.remove_words(words.data, words.start, ends, document_ends, dropped, out, out_ends, out_document_ends)
    at_start = _still_at_start(words, document_ends, ~dropped)
    return Words(_read_only(out[: out_ends[n - 1] if n else 0]), 0, out_ends[:n], out_document_ends, at_start)


def _still_at_start(words: Words, document_ends: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """``at_start`` when of the words up to ``document_ends`` only those stay that are ``kept`` (bool): where the first word
    of a document goes, the next one does not begin the document."""
    first = np.append(0, document_ends[:-1])
    at_start = np.ones(len(document_ends), bool) if words.at_start is None else words.at_start.copy()
    nonempty = first < document_ends
    at_start[nonempty] &= kept[first[nonempty]]
    return at_start


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False  # kernels are compiled for read-only text
    return array
