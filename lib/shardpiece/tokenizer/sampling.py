"""Sampling of segmentations: a text encoded differently in every epoch, to regularize the model that is trained on it.

Random numbers come from a key per document, made of seed, epoch and the document's id and of nothing else: a document has
the same tokens on any cluster, in any order and batch, and when a failed task is repeated.
"""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from shardpiece.errors import ConfigError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer import sampling_kernels as k
from shardpiece.tokenizer.model import Encoder, Model

ALL = -1


@dataclass(frozen=True)
class Sampling:
    """How segmentations are drawn.

    ``dropout``: of BPE models: the probability in [0, 1) with which a possible merge is left out at each step (Provilkov
    et al. 2020). ``alpha``: of Unigram models: segmentations are drawn in proportion to their probability to this power (Kudo
    2018), from the ``nbest`` best ones or from all (-1 or None); 1 takes the best one, as alpha None does.
    ``seed`` and ``epoch`` begin other streams of random numbers.

    Raises ConfigError.
    """

    dropout: float = 0.0
    alpha: float | None = None
    nbest: int | None = ALL
    seed: int = 0
    epoch: int = 0

    def __post_init__(self):
        if not _is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise ConfigError(f"sampling: dropout is a probability, at least 0 and less than 1, not {self.dropout!r}")
        if self.alpha is not None and (not _is_number(self.alpha) or not self.alpha > 0):
            raise ConfigError(f"sampling: alpha must be greater than 0, not {self.alpha!r}")
        if self.nbest is None:
            object.__setattr__(self, "nbest", ALL)
        if type(self.nbest) is not int or (self.nbest < 1 and self.nbest != ALL):
            raise ConfigError(f"sampling: nbest is a number from 1 on, or -1 for all, not {self.nbest!r}")
        for name in ("seed", "epoch"):
            value = getattr(self, name)
            if type(value) is not int or not -(2**63) <= value < 2**63:
                raise ConfigError(f"sampling: {name} is an integer of 64 bits, not {value!r}")
        if self.dropout and self.samples_unigram:
            raise ConfigError("sampling: dropout is for BPE models and alpha for Unigram models: give one of them")

    @property
    def samples_unigram(self) -> bool:
        """Whether a Unigram model gives anything but its best segmentation."""
        return self.alpha is not None and self.nbest != 1

    @property
    def deterministic(self) -> bool:
        return not self.dropout and not self.samples_unigram

    def check(self, kind: str) -> None:
        """Raises ConfigError when models of this kind cannot be sampled from in this way."""
        if self.dropout and kind != "bpe":
            raise ConfigError(f"sampling: dropout is for BPE models, and the tokenizer's model is of the kind {kind}")
        if self.samples_unigram and kind != "unigram":
            raise ConfigError(f"sampling: alpha is for Unigram models, and the tokenizer's model is of the kind {kind}")
        if (self.nbest or 1) > 1 and kind != "unigram":
            raise ConfigError(f"sampling: nbest is for Unigram models, and the tokenizer's model is of the kind {kind}")


def document_keys(ids: Sequence[str | bytes | int] | pa.Array | pa.ChunkedArray, sampling: Sampling) -> np.ndarray:
    """uint64 [documents]: the xxHash64 (Collet 2012) of seed, epoch and each document's id. Numbers count as their decimal
    text. Raises ConfigError for an id that is missing or of another type."""
    if isinstance(ids, pa.Array | pa.ChunkedArray):
        ids = ids.to_pylist()
    front = b"%d,%d," % (sampling.seed, sampling.epoch)
    keys = np.empty(len(ids), np.uint64)
    for d, given in enumerate(ids):
        match given:
            case str():
                raw = given.encode("utf-8", "surrogatepass")
            case bytes():
                raw = given
            case bool():
                raise ConfigError(f"sampling: the id of document {d} is {given!r}, no text and no integer")
            case int() | np.integer():
                raw = b"%d" % given
            case _:
                raise ConfigError(f"sampling: the id of document {d} is {given!r:.60}, no text and no integer")
        keys[d] = xxhash.xxh64_intdigest(front + raw)
    return keys


def keys_of(n: int, sampling: Sampling | None, keys: np.ndarray | None) -> np.ndarray | None:
    """The keys to use for ``n`` documents: None without sampling, ``keys`` if there are as many, else those of the ids 0,
    1, 2, ..."""
    if sampling is None:
        return None
    if keys is None:
        return document_keys(range(n), sampling)
    if len(keys) != n:
        raise ConfigError(f"sampling: {len(keys)} keys are given for {n} documents")
    return read_only(np.ascontiguousarray(keys, np.uint64))


def piece_keys(keys: np.ndarray | None, owners: np.ndarray) -> np.ndarray | None:
    """A key for each piece that special tokens cut documents into, from the documents' ``keys`` (None: no sampling);
    ``owners``: int64 [pieces], the document each piece is of, ascending. The first piece has its document's key."""
    return None if keys is None else k.piece_keys(keys, read_only(np.ascontiguousarray(owners, np.int64)))


def encode_words(model: Model, encoder: Encoder, words: Words, sampling: Sampling | None, keys: np.ndarray | None):
    """``encoder.encode(words)``, or what ``sampling`` makes of it; ``keys``: uint64, one for each of the words' documents
    (or pieces of them). Raises ConfigError for a model that cannot be sampled from in this way."""
    if sampling is not None:
        sampling.check(model.kind)
        if not sampling.deterministic:
            return encoder.encode_sampled(words, sampling, keys)
    return encoder.encode(words)


def _is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
