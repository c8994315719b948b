"""Pre-tokenizers: documents cut into words, the pieces that no token crosses.

One object counts and encodes, so training and inference cannot split differently; its ``fingerprint`` goes into the
word table, the tokenizer and the shards. It carries the tables its pattern was compiled to, classes of code points
included: a tokenizer that is loaded never asks the installed ``regex`` what a letter is.
"""

import hashlib
import warnings
from difflib import get_close_matches

import numpy as np
import regex

from shardpiece import storage
from shardpiece.errors import ConfigError, DocumentError, FormatError, ShardpieceWarning
from shardpiece.text.dfa import DFA, compile_pattern
from shardpiece.text.documents import Documents, Words
from shardpiece.text.patterns import ALIASES, PATTERNS
from shardpiece.text.regex_syntax import UnsupportedPattern
from shardpiece.text.splitter import Splitter

# Where the regex module has to split, a pattern may be exponential on some text. Seconds per document, and per megabyte.
TIMEOUT_SECONDS = 30.0
TIMEOUT_SECONDS_PER_MB = 20.0


class PreTokenizer:
    """Splits documents by a pattern. Text between matches is a word too, so that nothing is lost (as Hugging Face's
    ``Split(behavior="isolated")`` does); an empty match is a border between two words.

    ``pattern``: a regular expression in the syntax of the ``regex`` module; ``name``: its published name or None. The
    pattern is compiled to an automaton (``dfa``); where that cannot express it, the ``regex`` module splits, some twenty
    times slower, and a ShardpieceWarning names the construct. Raises ConfigError when it is no regular expression.
    """

    def __init__(self, pattern: str, name: str | None = None):
        try:
            compiled = regex.compile(pattern)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ConfigError(
                f"pretokenizer: {pattern!r} is not a known name ({', '.join(PATTERNS)}) "
                f"nor a regular expression that compiles ({error})"
            ) from None
        if compiled.flags & regex.REVERSE:
            raise ConfigError(f"pretokenizer: {pattern!r} searches backwards, which words cannot be cut by")
        self.pattern, self.name = pattern, name
        self.unicode = f"regex {regex.__version__}"
        try:
            self._set_engine(compile_pattern(pattern))
        except UnsupportedPattern as error:
            self._set_engine(None)
            warnings.warn(
                f"pretokenizer: {error} cannot be compiled; the regex module splits instead, some twenty times slower",
                ShardpieceWarning,
                stacklevel=2,
            )

    def _set_engine(self, dfa: DFA | None) -> None:
        self.dfa = dfa
        self._splitter = None if dfa is None else Splitter(dfa)
        self._regex = regex.compile(self.pattern) if dfa is None else None

    @classmethod
    def named(cls, name_or_pattern: str) -> "PreTokenizer":
        """A published pre-tokenizer by its name, or any regular expression.

        Raises ConfigError for a pattern that does not compile, and for a plain word that looks like a misspelt name.
        """
        name_or_pattern = ALIASES.get(name_or_pattern, name_or_pattern)
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
        """The pre-tokenizer of an artifact, with the tables stored there. Raises FormatError when they are damaged."""
        self = cls.__new__(cls)
        try:
            self.pattern, self.name, self.unicode = spec["pattern"], spec["name"], spec["unicode"]
            if spec["engine"] not in ("dfa", "regex"):
                raise ValueError(f"unknown engine {spec['engine']!r}")
            self._set_engine(DFA.from_spec(spec["tables"]) if spec["engine"] == "dfa" else None)
        except (KeyError, TypeError, ValueError, AttributeError, regex.error) as error:
            raise FormatError(f"the stored pre-tokenizer is damaged ({type(error).__name__}: {error})") from None
        installed = f"regex {regex.__version__}"
        if self.dfa is None and self.unicode != installed:
            warnings.warn(
                f"pretokenizer: split by {self.unicode} when it was made, by {installed} now: "
                f"characters that Unicode has changed in between may be split differently",
                ShardpieceWarning,
                stacklevel=2,
            )
        return self

    @property
    def spec(self) -> dict:
        """Everything that decides the splits, as stored in artifacts."""
        tables = {} if self.dfa is None else {"tables": self.dfa.to_spec()}
        engine = "regex" if self.dfa is None else "dfa"
        return {"name": self.name, "pattern": self.pattern, "engine": engine, "unicode": self.unicode, **tables}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the pattern and its tables (for the regex engine, of the pattern and that module's version)."""
        how = self.unicode if self.dfa is None else self.dfa.to_spec()
        return hashlib.sha256(storage.canonical_json({"pattern": self.pattern, "how": how})).hexdigest()

    def __repr__(self) -> str:
        return f"PreTokenizer({self.name or self.pattern!r})"

    def split(self, documents: Documents) -> Words:
        """Cut every document. Raises DocumentError for the first one on which the pattern runs too long."""
        if self._splitter is not None:
            return Words(documents.data, int(documents.offsets[0]), *self._splitter.split(documents))
        ends: list[np.ndarray] = []
        document_ends = np.zeros(len(documents), np.int64)
        total = 0
        offsets = documents.offsets
        for d in range(len(documents)):
            start, end = int(offsets[d]), int(offsets[d + 1])
            if end > start:
                word_ends = self._split_by_regex(documents.data[start:end], d)
                word_ends += start
                ends.append(word_ends)
                total += len(word_ends)
            document_ends[d] = total
        all_ends = np.concatenate(ends) if ends else np.empty(0, np.int64)
        return Words(documents.data, int(documents.offsets[0]), all_ends, document_ends)

    def split_text(self, text: str) -> list[str]:
        """The words of one text."""
        return [word.decode() for word in self.split(Documents.from_strings([text])).to_list()[0]]

    def _split_by_regex(self, raw: np.ndarray, d: int) -> np.ndarray:
        """Byte ends of the words of one document."""
        text = raw.tobytes().decode()
        timeout = TIMEOUT_SECONDS + TIMEOUT_SECONDS_PER_MB * len(raw) / 1e6
        borders: list[int] = []
        last = 0
        try:
            for match in self._regex.finditer(text, timeout=timeout):
                for border in match.span():
                    if border > last:
                        borders.append(border)
                        last = border
        except TimeoutError:
            raise DocumentError(
                d,
                f"the pre-tokenizer pattern ran for more than {timeout:.0f} s on this document of "
                f"{len(raw):,} bytes; simplify the pattern or leave the document out",
            ) from None
        if last < len(text):
            borders.append(len(text))
        # Byte offset at which each character begins, and the end.
        starts = np.append(np.flatnonzero((raw & 0xC0) != 0x80), len(raw))
        return starts[borders]
