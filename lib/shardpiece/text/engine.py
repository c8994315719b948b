"""The text engine: everything that happens to text before a model sees it."""

import hashlib
from functools import cached_property

import numpy as np

from shardpiece import storage
from shardpiece.errors import ConfigError, FormatError
from shardpiece.text import normalizers
from shardpiece.text.classed import ClassedSplitter
from shardpiece.text.documents import Documents, Words
from shardpiece.text.normalizers import Normalizer
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.text.steps import SplitStep


class TextEngine:
    """A normalizer (or none) and a pre-tokenizer as one object, which counts and encodes, so that training and
    inference cannot treat text differently. Its fingerprint stands in the word table, the tokenizer and the shards.

    ``pretokenizer`` and ``normalizer``: the objects, or settings that make them.
    """

    def __init__(self, pretokenizer, normalizer=None):
        self.pretokenizer = pretokenizer if isinstance(pretokenizer, PreTokenizer) else PreTokenizer(pretokenizer)
        self.normalizer = normalizer if isinstance(normalizer, Normalizer) else normalizers.normalizer(normalizer)

    @classmethod
    def of(cls, given) -> "TextEngine":
        """An engine as it is; a pre-tokenizer, or the setting of one, as an engine without normalizer."""
        return given if isinstance(given, cls) else cls(given)

    @classmethod
    def from_spec(cls, spec: dict) -> "TextEngine":
        """The engine of an artifact. Raises FormatError when it is damaged."""
        try:
            stored = spec["normalizer"]
            pretokenizer = PreTokenizer.from_spec(spec["pretokenizer"])
        except (KeyError, TypeError) as error:
            raise FormatError(f"the stored text engine is damaged ({type(error).__name__}: {error})") from None
        return cls(pretokenizer, None if stored is None else Normalizer.from_spec(stored))

    @property
    def spec(self) -> dict:
        """Everything that decides the words, as stored in artifacts."""
        return {
            "normalizer": self.normalizer and self.normalizer.spec,
            "pretokenizer": self.pretokenizer.spec,
        }

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of both with their tables."""
        parts = {
            "normalizer": self.normalizer and self.normalizer.fingerprint,
            "pretokenizer": self.pretokenizer.fingerprint,
        }
        return hashlib.sha256(storage.canonical_json(parts)).hexdigest()

    def check_setting(self, given: dict, whose: str) -> None:
        """Raises ConfigError when ``given``, the keys pretokenizer and normalizer that a user has set, makes another engine
        than this one, which is ``whose``."""
        wanted = type(self)(given.get("pretokenizer", self.pretokenizer), given.get("normalizer", self.normalizer))
        if wanted.fingerprint != self.fingerprint:
            raise ConfigError(
                f"{whose} has {self.name}, and the settings say {wanted.name}: count again, or leave them out"
            )

    @property
    def name(self) -> str:
        """For people: what it does to text."""
        return repr(self.pretokenizer) if self.normalizer is None else f"{self.normalizer!r}, {self.pretokenizer!r}"

    def __repr__(self) -> str:
        return f"TextEngine({self.name})"

    @cached_property
    def _classed(self) -> ClassedSplitter | None:
        """Both in one pass, where that gives the same."""
        if self.normalizer is None or len(self.pretokenizer.steps) != 1:
            return None
        step, maps = self.pretokenizer.steps[0], self.normalizer.character_maps()
        return step.classed(*maps) if maps is not None and isinstance(step, SplitStep) else None

    def split(self, documents: Documents, at_start: np.ndarray | None = None) -> Words:
        """Normalize and cut every document; ``at_start``: see PreTokenizer.split. Raises DocumentError for the first
        document on which a pattern runs too long."""
        if self._classed is not None and (found := self._classed.split(documents)) is not None:
            data, ends, document_ends = found
            return Words(data, 0, ends, document_ends, at_start)
        if self.normalizer is not None:
            documents = self.normalizer.normalize(documents)
        return self.pretokenizer.split(documents, at_start)

    def split_text(self, text: str) -> list[str]:
        """The words of one text; bytes that are no characters as \\xNN."""
        return self.split(Documents.from_strings([text])).to_texts()[0]
