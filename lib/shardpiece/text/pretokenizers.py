"""Pre-tokenizers: documents cut into words, the pieces that no token crosses.

One compiled object counts and encodes, so training and inference cannot split differently; its ``fingerprint`` goes
into the word table, the tokenizer and the shards.
"""

import hashlib
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import regex

from shardpiece import storage
from shardpiece.errors import ConfigError, DocumentError
from shardpiece.text.documents import Documents
from shardpiece.text.patterns import PATTERNS

# A user's pattern is data from a file: it may be quadratic or worse on some text. Seconds per document, and per
# megabyte of it.
TIMEOUT_SECONDS = 30.0
TIMEOUT_SECONDS_PER_MB = 20.0


@dataclass(frozen=True)
class Words:
    """``ends``: int64, where each word ends in the documents' data; a word begins where the one before ends.
    ``document_ends``: int64 [documents], the number of words up to and including each document."""

    ends: np.ndarray
    document_ends: np.ndarray


class PreTokenizer:
    """Splits documents by a pattern. Text between matches is a word too, so that nothing is lost (as Hugging Face's
    ``Split(behavior="isolated")`` does); empty matches split nothing.

    ``name``: the published name or None; ``pattern``: the regular expression.
    """

    def __init__(self, pattern: str, name: str | None = None):
        self.name = name
        self.pattern = pattern
        try:
            self._compiled = regex.compile(pattern)
        except regex.error as error:
            raise ConfigError(
                f"pretokenizer: {pattern!r} is not a known name ({', '.join(PATTERNS)}) "
                f"nor a regular expression that compiles ({error})"
            ) from None

    @classmethod
    def named(cls, name_or_pattern: str) -> "PreTokenizer":
        """A published pre-tokenizer by its name, or any regular expression.

        Raises ConfigError for a pattern that does not compile, and for a plain word that looks like a misspelt name.
        """
        if name_or_pattern in PATTERNS:
            return cls(PATTERNS[name_or_pattern], name_or_pattern)
        if name_or_pattern.replace("_", "").replace("-", "").isalnum():
            close = get_close_matches(name_or_pattern, PATTERNS, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"pretokenizer {name_or_pattern!r} is not one of {', '.join(PATTERNS)}{hint} "
                f"(a regular expression of letters alone can be written as (?:...))"
            )
        return cls(name_or_pattern)

    @classmethod
    def from_spec(cls, spec: dict) -> "PreTokenizer":
        return cls(spec["pattern"], spec.get("name"))

    @property
    def spec(self) -> dict:
        """What decides the splits, as stored in artifacts."""
        return {"type": "pattern", "pattern": self.pattern, "name": self.name}

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(storage.canonical_json({"pattern": self.pattern})).hexdigest()

    def __repr__(self) -> str:
        return f"PreTokenizer({self.name or self.pattern!r})"

    def split(self, documents: Documents) -> Words:
        """Cut every document. Raises DocumentError for the first one that takes longer than the time bound."""
        ends: list[np.ndarray] = []
        document_ends = np.zeros(len(documents), np.int64)
        total = 0
        offsets = documents.offsets
        for d in range(len(documents)):
            start, end = int(offsets[d]), int(offsets[d + 1])
            if end > start:
                word_ends = self._split_one(documents.data[start:end], d)
                word_ends += start
                ends.append(word_ends)
                total += len(word_ends)
            document_ends[d] = total
        return Words(np.concatenate(ends) if ends else np.empty(0, np.int64), document_ends)

    def split_text(self, text: str) -> list[str]:
        """The words of one text."""
        documents = Documents.from_strings([text])
        raw = documents.data.tobytes()
        words, start = [], 0
        for end in self.split(documents).ends.tolist():
            words.append(raw[start:end].decode())
            start = end
        return words

    def _split_one(self, raw: np.ndarray, d: int) -> np.ndarray:
        """Byte ends of the words of one document."""
        text = raw.tobytes().decode()
        # The published patterns are linear, and watching the clock makes regex three times slower.
        timeout = None
        if self.pattern != PATTERNS.get(self.name):
            timeout = TIMEOUT_SECONDS + TIMEOUT_SECONDS_PER_MB * len(raw) / 1e6
        try:
            ends = self._character_ends(text, timeout)
        except TimeoutError:
            raise DocumentError(
                d, f"the pre-tokenizer pattern ran for more than {timeout:.0f} s on this document of "
                f"{len(raw):,} bytes; simplify the pattern or leave the document out"
            ) from None  # fmt: skip
        if len(text) == len(raw):
            return ends
        # Byte offset at which each character begins, and the end.
        starts = np.append(np.flatnonzero((raw & 0xC0) != 0x80), len(raw))
        return starts[ends]

    def _character_ends(self, text: str, timeout: float | None) -> np.ndarray:
        if self._compiled.groups == 0:
            words = self._compiled.findall(text, timeout=timeout)
            ends = np.fromiter(map(len, words), np.int64, len(words)).cumsum()
            if len(ends) and ends[-1] == len(text) and "" not in words:
                return ends
        # Gaps, empty matches or groups: take the borders of every match.
        borders: list[int] = []
        last = 0
        for match in self._compiled.finditer(text, timeout=timeout):
            for border in match.span():
                if border > last:
                    borders.append(border)
                    last = border
        if last < len(text):
            borders.append(len(text))
        return np.array(borders, np.int64)
