"""The word-level model, a baseline: whole words have ids, all others are unknown."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer import wordlevel_kernels as k
from shardpiece.tokenizer.model import ids_of, vocabulary_identity


@dataclass(frozen=True)
class WordLevelModel:
    """``vocab``: the word of each id, None where the id is no word (a special token); words that are not in it become
    ``unk_id``. Raises FormatError for a vocabulary with the same word twice, or without an unknown token."""

    vocab: tuple[bytes | None, ...]
    unk_id: int
    kind = "word"

    def __post_init__(self):
        ids_of(self.vocab)
        if self.unk_id is None or not 0 <= self.unk_id < len(self.vocab):
            raise FormatError("the word-level model needs an unknown token that is in the vocabulary")

    def __len__(self) -> int:
        return len(self.vocab)

    def settings(self) -> dict:
        """All but the vocabulary, as stored in artifacts."""
        return {"type": self.kind, "unk": self.unk_id}

    def identity(self) -> Iterator[bytes]:
        yield from vocabulary_identity({**self.settings(), "vocab_size": len(self)}, self.vocab)

    def pieces(self) -> list[bytes | None]:
        return list(self.vocab)

    def encoder(self, cache_bytes: int = 0) -> "WordLevelEncoder":
        return WordLevelEncoder(self)


class WordLevelEncoder:
    """Encodes words with a model, one look-up each."""

    def __init__(self, model: WordLevelModel):
        self._unk = model.unk_id
        words = [word or b"" for word in model.vocab]
        self._starts = np.cumsum([0, *map(len, words)]).astype(np.int64)
        self._data = np.frombuffer(b"".join(words) + b"\0", np.uint8)
        self._slots = np.full(1 << max(4, (2 * len(words)).bit_length()), -1, np.int32)
        k.fill_slots(self._slots, self._data, self._starts)

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]."""
        out = np.empty(len(words.ends), np.int32)
        offsets = np.zeros(len(words.document_ends) + 1, np.int64)
        n = k.encode_words(
            read_only(words.data), read_only(words.ends), read_only(words.document_ends), words.start,
            self._slots, self._data, self._starts, self._unk, out, offsets[1:],
        )  # fmt: skip
        return out[:n], offsets
