"""The WordPiece model: a vocabulary whose pieces are matched longest first (Schuster and Nakajima 2012, Devlin et al.
2019), and the trie its encoder runs on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer import longest_match_kernels as k
from shardpiece.tokenizer.bpe_tables import trie_cells
from shardpiece.tokenizer.model import vocabulary_identity
from shardpiece.tokenizer.vocabulary import Vocabulary
from shardpiece.tokenizer.word_cache import WordCache


@dataclass(frozen=True)
class WordPieceModel:
    """``vocab``: the piece of each id in UTF-8 (any sequence is taken), those that continue a word with ``prefix`` in front, None where the id is
    no piece of the model (a special token). Encoding takes the longest piece at the beginning of a word, then the longest
    at the beginning of the rest, and so on; a word for which that fails, or of more than ``max_characters`` characters,
    becomes ``unk_id``, once for the whole word.

    Raises FormatError for a vocabulary that cannot be matched with.
    """

    vocab: Vocabulary
    unk_id: int
    prefix: bytes = b"##"
    max_characters: int = 100
    kind = "wordpiece"

    def __post_init__(self):
        object.__setattr__(self, "vocab", Vocabulary.of(self.vocab))
        for piece in self.vocab.ids:
            try:
                piece.decode()
            except UnicodeDecodeError:
                raise FormatError(f"the piece {piece!r} is no valid UTF-8: it is not a WordPiece vocabulary") from None
        if self.unk_id is None or not 0 <= self.unk_id < len(self.vocab):
            raise FormatError("the WordPiece model needs an unknown token that is in the vocabulary")
        if self.max_characters < 1:
            raise FormatError(f"max_characters must be at least 1, not {self.max_characters}")

    def __len__(self) -> int:
        return len(self.vocab)

    def settings(self) -> dict:
        """All but the vocabulary, as stored in artifacts."""
        return {
            "type": self.kind,
            "prefix": self.prefix.decode(),
            "unk": self.unk_id,
            "max_characters": self.max_characters,
        }

    def identity(self) -> Iterator[bytes]:
        yield from vocabulary_identity({**self.settings(), "vocab_size": len(self)}, self.vocab)

    def pieces(self) -> list[bytes | None]:
        return list(self.vocab)

    def encoder(self, cache_bytes: int = 64 << 20) -> "WordPieceEncoder":
        return WordPieceEncoder(self, cache_bytes)


class WordPieceEncoder:
    """Encodes words with a model; keeps a word cache of about ``cache_bytes``. One per thread. A word that is not there takes
    its bytes times those of the longest piece at most."""

    def __init__(self, model: WordPieceModel, cache_bytes: int = 64 << 20):
        vocab = model.vocab
        self._unk, self._most = model.unk_id, model.max_characters
        self._cells = trie_cells(vocab, vocab.present & (np.diff(vocab.offsets) > 0))
        self._continuing = k.cell_behind(np.frombuffer(model.prefix, np.uint8), self._cells)
        self._cache = WordCache(cache_bytes)

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]."""
        whole = k.NO_IDS, k.NO_BYTES, k.NO_OFFSETS
        return look_up(words, (self._cells, self._continuing, *whole, self._most, self._unk), self._cache)


def look_up(words: Words, tables: tuple, cache: WordCache) -> tuple[np.ndarray, np.ndarray]:
    """Run ``encode_words`` of ``longest_match_kernels``."""
    out = np.empty(words.size + 4, np.int32)
    offsets = np.zeros(len(words.document_ends) + 1, np.int64)
    n = k.encode_words(
        read_only(words.data), read_only(words.ends), read_only(words.document_ends), words.start, *tables,
        cache.short_table, cache.long_table, cache.ring_bytes, cache.ring_tokens, cache.state, out, offsets[1:],
    )  # fmt: skip
    return out[:n], offsets
