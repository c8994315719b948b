"""Where documents go: to validation or training, how many times, and in which order.

All of it follows from hashes of the document's id, so that every task finds it out for itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardpiece.corpus import mixture
from shardpiece.corpus.keys import below, document_hash
from shardpiece.corpus.mixture import Take
from shardpiece.errors import ShardpieceError

_HALF = np.uint64(32)


@dataclass(frozen=True)
class Validation:
    """The share ``fraction`` of the documents is set apart: the same ones as the corpus grows, and those of a smaller
    fraction are among those of a larger one."""

    fraction: float
    seed: int = 0

    def chosen(self, ids: pa.Array) -> np.ndarray:
        """bool [n]: which documents are for validation."""
        return below(document_hash(self.seed, ids, "validation"), self.fraction)


@dataclass(frozen=True)
class Placement:
    """``seed``: of order and mixture; ``takes``: by group, how often its documents are taken, None for once each;
    ``validation``: None when nothing is set apart; ``shuffled``: whether the order goes by ids too."""

    seed: int = 0
    takes: Mapping[str, Take] | None = None
    validation: Validation | None = None
    shuffled: bool = False

    @property
    def goes_by_ids(self) -> str:
        """What needs an id of every document, for messages; "" if nothing does."""
        if self.takes is not None:
            return "the mixture"
        if self.validation is not None:
            return "the validation split"
        return "shuffling" if self.shuffled else ""

    def copies(self, ids: pa.Array, groups: pa.Array | None) -> np.ndarray | None:
        """int64 [n]: how many times each document is taken; None: each once. ``groups``: strings, null is the group "".
        A document for validation is taken once at most."""
        if self.takes is None:
            return None
        names, codes = group_codes(groups)
        unknown = [name for name in names if name not in self.takes]
        if unknown:
            raise ShardpieceError(f"the group {unknown[0]!r} was not there when the mixture was measured")
        whole = np.array([self.takes[name].whole for name in names], np.int64)
        bounds = np.array([self.takes[name].bound for name in names], np.uint64)
        if not len(codes):
            return np.empty(0, np.int64)
        copies = whole[codes] + (document_hash(self.seed, ids, mixture.PURPOSE) < bounds[codes])
        if self.validation is not None:
            copies = np.where(self.validation.chosen(ids), np.minimum(copies, 1), copies)
        return copies

    def keys(self, ids: pa.Array, copy: int = 0) -> np.ndarray:
        """uint64 [n]: what shuffling goes by. Every copy of a document has a key of its own."""
        return document_hash(self.seed, ids, f"shuffle {copy}" if copy else "shuffle")


def group_codes(groups: pa.Array) -> tuple[list[str], np.ndarray]:
    """(distinct names, for each document the index of its own): a null is the group ""."""
    encoded = groups.fill_null("").dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def shard_of(keys: np.ndarray, shards: int) -> np.ndarray:
    """int64 [n] in [0, shards): the shards divide the keys (uint64) evenly and in their order."""
    return ((keys >> _HALF) * np.uint64(shards) >> _HALF).astype(np.int64)
