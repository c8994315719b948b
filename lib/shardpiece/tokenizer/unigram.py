"""The Unigram model (Kudo 2018): pieces with log-probabilities, and the tables its encoder runs on."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.documents import Words
from shardpiece.tokenizer import viterbi_kernels as k
from shardpiece.tokenizer.model import ids_of, vocabulary_identity
from shardpiece.tokenizer.trie_kernels import build_trie

UNKNOWN_PENALTY = 10.0
"""What an unknown character costs below the lowest score of any piece, as in SentencePiece and Hugging Face."""

_MAX_PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class UnigramModel:
    """``vocab``: the UTF-8 bytes of each id's piece, None where an id is not the model's. ``scores``: float64
    [len(vocab)], log-probabilities, ignored where vocab is None and for byte pieces. ``unk_id``: stands for characters
    that no piece spells, adjacent ones of a word together; None when there is no such token. ``byte_ids``: int32 [256],
    the ids of the pieces <0x00> ... that spell unknown characters (-1: no piece for that byte), or None without byte
    fallback. Byte pieces are never found in text. Raises FormatError for a vocabulary that cannot work."""

    vocab: tuple[bytes | None, ...]
    scores: np.ndarray
    unk_id: int | None = None
    byte_ids: np.ndarray | None = None

    kind: ClassVar[str] = "unigram"

    def __post_init__(self):
        scores = np.ascontiguousarray(self.scores, np.float64)
        n = len(self.vocab)
        if scores.shape != (n,):
            raise FormatError(f"a Unigram vocabulary of {n:,} pieces with {scores.size:,} scores")
        if self.unk_id is not None and not 0 <= self.unk_id < n:
            raise FormatError(f"the unk id {self.unk_id} is outside the vocabulary of {n:,} pieces")
        byte_ids = self.byte_ids
        if byte_ids is not None:
            byte_ids = np.ascontiguousarray(byte_ids, np.int32)
            if byte_ids.shape != (256,) or byte_ids.min() < -1 or byte_ids.max() >= n:
                raise FormatError("byte fallback needs 256 ids of the vocabulary")
            object.__setattr__(self, "byte_ids", byte_ids)
        object.__setattr__(self, "scores", scores)
        ids_of(self.vocab)
        for i in self._spelled:
            if not 0 < len(self.vocab[i]) <= _MAX_PIECE_BYTES:
                raise FormatError(f"piece {i} has {len(self.vocab[i]):,} bytes")
        bad = [i for i in self._spelled if not np.isfinite(scores[i])]
        if bad:
            raise FormatError(f"the score of piece {bad[0]} is {scores[bad[0]]}")

    def __len__(self) -> int:
        return len(self.vocab)

    @cached_property
    def _spelled(self) -> list[int]:
        """The ids of pieces that are found in text."""
        others = set() if self.byte_ids is None else set(self.byte_ids.tolist())
        return [i for i, piece in enumerate(self.vocab) if piece is not None and i not in others and i != self.unk_id]

    def settings(self) -> dict:
        """All but vocabulary and scores, in JSON."""
        return {"type": self.kind, "unk": self.unk_id, "byte_fallback": self.byte_ids is not None}

    def identity(self) -> Iterator[bytes]:
        """The bytes of everything that decides ids."""
        yield from vocabulary_identity(self.settings(), self.vocab)
        kept = np.zeros(len(self), np.float64)
        kept[self._spelled] = self.scores[self._spelled]
        yield kept.astype("<f8").tobytes()
        if self.byte_ids is not None:
            yield self.byte_ids.astype("<i4").tobytes()

    def pieces(self) -> list[bytes | None]:
        """What each id contributes to decoded text: byte pieces as that byte, others as spelled."""
        result = list(self.vocab)
        if self.byte_ids is not None:
            for b, i in enumerate(self.byte_ids.tolist()):
                if i >= 0:
                    result[i] = bytes([b])
        return result

    def encoder(self, cache_bytes: int = 64 << 20) -> "UnigramEncoder":
        return UnigramEncoder(self, cache_bytes)

    @cached_property
    def trie(self) -> tuple[np.ndarray, np.ndarray]:
        """(nodes, ids) as ``viterbi_kernels`` takes them."""
        order = sorted(self._spelled, key=lambda i: self.vocab[i])
        offsets = np.cumsum([0, *(len(self.vocab[i]) for i in order)], dtype=np.int64)
        symbols = np.frombuffer(b"".join(self.vocab[i] for i in order), np.uint8).astype(np.int32)
        nodes, node_of = build_trie(symbols, offsets, 256)
        nodes["weight"] = -np.inf
        nodes["weight"][node_of] = self.scores[order]
        ids = np.full(len(nodes), -1, np.int32)
        ids[node_of] = order
        return nodes, ids

    @property
    def unknown_score(self) -> float:
        """What an unknown character adds to a path."""
        return float(self.scores[self._spelled].min(initial=0.0)) - UNKNOWN_PENALTY


class UnigramEncoder:
    """Encodes words with a model; keeps a word cache of about ``cache_bytes``. One per thread."""

    def __init__(self, model: UnigramModel, cache_bytes: int = 64 << 20):
        self._nodes, self._ids = model.trie
        self._unknown_score = model.unknown_score
        self._unk_id = -1 if model.unk_id is None else model.unk_id
        self._byte_ids = np.full(256, -1, np.int32) if model.byte_ids is None else model.byte_ids
        # Half for the slots of 32 bytes, a quarter each for the words and their tokens.
        slots = 1 << max(4, (cache_bytes // 64).bit_length() - 1)
        self._slots = np.zeros((slots, 4), np.int64)
        self._cached_bytes = np.empty(max(cache_bytes // 4, k.CACHED_WORD), np.uint8)
        self._cached_tokens = np.empty(max(cache_bytes // 16, k.CACHED_WORD), np.int32)
        self.state = np.zeros(k.STATE_SIZE, np.int64)

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]. Raises
        ConfigError for a character that no piece spells when the model has neither an unk token nor its bytes."""
        out = np.empty(words.size, np.int32)
        offsets = np.zeros(len(words.document_ends) + 1, np.int64)
        n = k.segment_words(
            words.data, words.ends, words.document_ends, words.start,
            self._nodes, self._ids, self._unknown_score, self._unk_id, self._byte_ids,
            self._slots, self._cached_bytes, self._cached_tokens, self.state, out, offsets[1:],
        )  # fmt: skip
        if n < 0:
            w = -1 - int(n)
            start = int(words.ends[w - 1]) if w else words.start
            word = words.data[start : int(words.ends[w])].tobytes()[:80]
            raise ConfigError(
                f"the model has no token for a character of {word.decode(errors='replace')!r}, and no unk token"
            )
        return out[:n], offsets
