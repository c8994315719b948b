"""The word-level model, a baseline: whole words have ids, all others are unknown."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.text.documents import Words
from shardpiece.tokenizer import longest_match_kernels as k
from shardpiece.tokenizer.model import vocabulary_identity
from shardpiece.tokenizer.vocabulary import Vocabulary
from shardpiece.tokenizer.word_cache import WordCache
from shardpiece.tokenizer.wordpiece import look_up


@dataclass(frozen=True)
class WordLevelModel:
    """``vocab``: the word of each id, None where the id is no word (a special token); words that are not in it become
    ``unk_id``. Raises FormatError for a vocabulary with the same word twice, or without an unknown token."""

    vocab: Vocabulary
    unk_id: int
    kind = "word"

    def __post_init__(self):
        object.__setattr__(self, "vocab", Vocabulary.of(self.vocab))
        self.vocab.check_distinct()
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

    def encoder(self, cache_bytes: int = 64 << 20) -> "WordLevelEncoder":
        return WordLevelEncoder(self, cache_bytes)


class WordLevelEncoder:
    """Encodes words with a model; keeps a word cache of about ``cache_bytes``. One per thread."""

    def __init__(self, model: WordLevelModel, cache_bytes: int = 64 << 20):
        vocab = model.vocab
        self._tables = (k.NO_CELLS, -1, vocab.slots, vocab.data, vocab.offsets, 0, model.unk_id)
        self._cache = WordCache(cache_bytes)

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]."""
        return look_up(words, self._tables, self._cache)
