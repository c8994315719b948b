"""What encoding counts on the way: how often every token occurs, how long documents are, and what each group has.

A shard's statistics lie beside its journal entry, so a retried or resumed shard counts once; the sum over the shards of a
run is ``statistics/NNNNN.parquet``, which the manifest lists. Both are the same format: Parquet with a row (token int32,
count int64) per token that occurs, and in the metadata of its schema, under ``shardpiece``, a JSON object with
``vocab_size``, ``lengths`` (documents per bin of length) and ``groups`` (group → documents, bytes, tokens).
"""

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardpiece import storage
from shardpiece.errors import FormatError, ShardpieceError
from shardpiece.kernel_cache import read_only
from shardpiece.shards.count_kernels import count_tokens

DIRECTORY = "statistics"
# Bin 0 is of empty documents, bin k of lengths from 2^(k-1) to 2^k - 1.
BINS = 64
GROUP_FIGURES = ("documents", "bytes", "tokens")
_KEY = b"shardpiece"
_SCHEMA = pa.schema([("token", pa.int32()), ("count", pa.int64())])


@dataclass
class Statistics:
    """``frequencies``: int64 [vocab_size], of every token as it is in the shards; ``lengths``: int64 [BINS], documents by
    tokens; ``groups``: group → int64 [3], GROUP_FIGURES (text bytes, tokens as in the shards)."""

    frequencies: np.ndarray
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    groups: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def empty(cls, vocab_size: int) -> "Statistics":
        return cls(np.zeros(vocab_size, np.int64))

    @property
    def tokens(self) -> int:
        return int(self.frequencies.sum())

    @property
    def documents(self) -> int:
        return int(self.lengths.sum())

    def add(self, tokens: np.ndarray, offsets: np.ndarray) -> None:
        """Documents as they go into the shard: ids, and int64 [documents + 1] from 0. Raises ShardpieceError for an id that
        is not below the vocabulary size."""
        # A third of the time of np.bincount, which copies to int64.
        if count_tokens(read_only(np.ascontiguousarray(tokens)), self.frequencies) >= 0:
            raise ShardpieceError(
                f"a token id outside the vocabulary of {len(self.frequencies)} was about to be written"
            )
        self.lengths += np.bincount(length_bins(np.diff(offsets)), minlength=BINS)

    def add_groups(self, groups: pa.Array, text_bytes: np.ndarray, tokens: np.ndarray) -> None:
        """The groups of the same documents, strings (a null is the group ""), and how long each is."""
        encoded = pc.fill_null(groups, "").dictionary_encode()
        of_document = encoded.indices.to_numpy(zero_copy_only=False)
        names = encoded.dictionary.to_pylist()
        documents = np.bincount(of_document, minlength=len(names))
        # Sums of weights are doubles: exact below 2^53.
        sizes = [np.bincount(of_document, of_each, len(names)).astype(np.int64) for of_each in (text_bytes, tokens)]
        for name, figures in zip(names, np.stack([documents, *sizes], axis=1), strict=True):
            self.groups[name] = self.groups.get(name, 0) + figures

    def merge(self, other: "Statistics") -> None:
        if len(other.frequencies) != len(self.frequencies):
            raise FormatError(
                f"statistics of {len(other.frequencies):,} and of {len(self.frequencies):,} tokens do not add up"
            )
        self.frequencies += other.frequencies
        self.lengths += other.lengths
        for name, figures in other.groups.items():
            self.groups[name] = self.groups.get(name, 0) + figures

    def to_bytes(self) -> bytes:
        found = np.flatnonzero(self.frequencies)
        said = {
            "vocab_size": len(self.frequencies),
            "lengths": np.trim_zeros(self.lengths, "b").tolist(),
            "groups": {name: self.groups[name].tolist() for name in sorted(self.groups)},
        }
        columns = [pa.array(found, pa.int32()), pa.array(self.frequencies[found], pa.int64())]
        table = pa.Table.from_arrays(columns, schema=_SCHEMA.with_metadata({_KEY: storage.canonical_json(said)}))
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd", use_dictionary=False)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, raw: bytes, where: str) -> "Statistics":
        """Raises FormatError that names ``where`` when this is something else."""
        try:
            table = pq.read_table(pa.BufferReader(raw), use_threads=False)
            said = json.loads((table.schema.metadata or {})[_KEY])
            statistics = cls.empty(int(said["vocab_size"]))
            statistics.frequencies[table["token"].to_numpy()] = table["count"].to_numpy()
            statistics.lengths[: len(said["lengths"])] = said["lengths"]
            statistics.groups = {name: np.array(figures, np.int64) for name, figures in said["groups"].items()}
        except (pa.ArrowException, KeyError, ValueError, TypeError, IndexError) as error:
            raise FormatError(f"{where}: damaged, or not statistics ({' '.join(str(error).split())[:200]})") from None
        return statistics


def length_bins(lengths: np.ndarray) -> np.ndarray:
    """The bin of every length: the number of binary digits."""
    return np.frexp(lengths.astype(np.float64))[1]


def bin_range(k: int) -> tuple[int, int]:
    """The first and the last length in a bin."""
    return (0, 0) if k == 0 else (1 << (k - 1), (1 << k) - 1)


def read_statistics(path: str) -> Statistics:
    try:
        return Statistics.from_bytes(storage.read_bytes(path), path)
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None


def summed(paths: Iterable[str], vocab_size: int) -> Statistics:
    total = Statistics.empty(vocab_size)
    for path in paths:
        total.merge(read_statistics(path))
    return total
