"""The WordPiece model: a vocabulary whose pieces are matched longest first (Schuster and Nakajima 2012, Devlin et al.
2019), and the trie its encoder runs on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer import longest_match_kernels as k
from shardpiece.tokenizer.model import ids_of, vocabulary_identity


@dataclass(frozen=True)
class WordPieceModel:
    """``vocab``: the piece of each id in UTF-8, those that continue a word with ``prefix`` in front, None where the id is
    no piece of the model (a special token). Encoding takes the longest piece at the beginning of a word, then the longest
    at the beginning of the rest, and so on; a word for which that fails, or of more than ``max_characters`` characters,
    becomes ``unk_id``, once for the whole word.

    Raises FormatError for a vocabulary that cannot be matched with.
    """

    vocab: tuple[bytes | None, ...]
    unk_id: int
    prefix: bytes = b"##"
    max_characters: int = 100
    kind = "wordpiece"

    def __post_init__(self):
        for piece in ids_of(self.vocab):
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

    def encoder(self, cache_bytes: int = 0) -> "WordPieceEncoder":
        return WordPieceEncoder(self)


class WordPieceEncoder:
    """Encodes words with a model. It keeps no cache of words: following the trie takes less time than to find a word in
    one. A word takes its bytes times those of the longest piece at most."""

    def __init__(self, model: WordPieceModel):
        self._unk = model.unk_id
        self._most = model.max_characters
        pieces = [(piece, i) for i, piece in enumerate(model.vocab) if piece]
        n = len(model.prefix)
        rest = [(piece[n:], i) for piece, i in pieces if piece.startswith(model.prefix) and len(piece) > n]
        edges = sum(len(piece) for piece, _ in (*pieces, *rest))  # at most: pieces share their beginnings
        size = 1 << max(4, (2 * edges).bit_length())
        self._slots = np.zeros(size, np.uint64)
        self._piece_at = np.full(size, -1, np.int32)
        for root, entered in enumerate((pieces, rest)):
            starts = np.cumsum([0, *(len(piece) for piece, _ in entered)]).astype(np.int64)
            data = np.frombuffer(b"".join(piece for piece, _ in entered) + b"\0", np.uint8)
            ids = np.array([i for _, i in entered], np.int32)
            k.add_pieces(data, starts, ids, root, self._slots, self._piece_at)

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]."""
        out = np.empty(words.size, np.int32)
        offsets = np.zeros(len(words.document_ends) + 1, np.int64)
        n = k.encode_words(
            read_only(words.data), read_only(words.ends), read_only(words.document_ends), words.start,
            self._slots, self._piece_at, self._most, self._unk, out, offsets[1:],
        )  # fmt: skip
        return out[:n], offsets
