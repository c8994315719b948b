"""What every model is: the part of a tokenizer that turns words into ids."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from shardpiece import storage
from shardpiece.text.documents import Words


class Encoder(Protocol):
    """Encodes words with its tables and cache; one per thread. Those of "bpe" and "unigram" models also have
    ``encode_sampled(words, sampling, keys)``, which gives the same two arrays: see ``sampling``."""

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]."""
        ...


class Model(Protocol):
    """``kind``: "bpe", "wordpiece", "unigram" or "word". ``vocab``: the piece of each id as its words spell it, None where
    an id is no piece of the model (a special token). ``unk_id``: what stands for text that the model cannot spell."""

    kind: str
    vocab: tuple[bytes | None, ...]
    unk_id: int | None

    def __len__(self) -> int: ...

    def settings(self) -> dict:
        """All but vocabulary, merges and scores, in JSON."""
        ...

    def identity(self) -> Iterator[bytes]:
        """Everything that decides ids, in pieces."""
        ...

    def pieces(self) -> list[bytes | None]:
        """What each id says, byte pieces as their byte."""
        ...

    def encoder(self, cache_bytes: int = 0) -> Encoder:
        """``cache_bytes``: about how much memory a cache of words may take, for models that keep one."""
        ...


def byte_piece(b: int) -> bytes:
    """The name of a byte in vocabularies of characters."""
    return b"<0x%02X>" % b


def vocabulary_identity(settings: dict, vocab: Iterable[bytes | None]) -> Iterator[bytes]:
    """``settings`` and the pieces, each with its length, for a fingerprint."""
    yield storage.canonical_json(settings)
    for piece in vocab:
        if piece is None:
            yield b"\xff\xff\xff\xff"
        else:
            yield len(piece).to_bytes(4, "little") + piece
