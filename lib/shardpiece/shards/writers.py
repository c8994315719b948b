"""Shard writers, one per format. Each takes batches of documents and writes its files atomically.

``parquet``: ``NAME.parquet`` with one row per document: id (string), tokens (list<int32>), n_tokens (int64).
``bin``: ``NAME.bin``, all tokens of all documents in order as little-endian uint16 or uint32 without a header (nanoGPT's
layout), and ``NAME.ends.npy``, int64, the number of tokens up to and including each document.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardpiece import storage
from shardpiece.errors import ShardpieceError

PARQUET_SCHEMA = pa.schema([("id", pa.string()), ("tokens", pa.list_(pa.int32())), ("n_tokens", pa.int64())])
_ROW_GROUP_TOKENS = 4 << 20


@dataclass(frozen=True)
class TokenBatch:
    """``ids``: string array, None for a format without ids; ``tokens``: integers, as ``shard_dtype`` says or int32;
    ``offsets``: int64 [documents + 1] into tokens, from 0."""

    ids: pa.Array | None
    tokens: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True)
class ShardFile:
    """A written file: name in the shard directory, size and checksum."""

    name: str
    bytes: int
    checksum: str

    def as_dict(self) -> dict:
        return asdict(self)


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest of uint16 and uint32 that holds every id below ``vocab_size``, special tokens included."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def shard_dtype(shard_format: str, vocab_size: int) -> np.dtype:
    """What the ids in a shard of this format are."""
    return token_dtype(vocab_size) if shard_format == "bin" else np.dtype(np.int32)


def write_shard(
    directory: str, name: str, shard_format: str, vocab_size: int, batches: Iterator[TokenBatch]
) -> list[ShardFile]:
    """Write one shard. Raises ShardpieceError when a token id is not below ``vocab_size``."""
    write = {"parquet": _write_parquet, "bin": _write_bin}[shard_format]
    return write(directory, name, vocab_size, _checked(batches, vocab_size))


def _checked(batches: Iterator[TokenBatch], vocab_size: int) -> Iterator[TokenBatch]:
    for batch in batches:
        if len(batch.tokens) and (batch.tokens.max() >= vocab_size or batch.tokens.min() < 0):
            raise ShardpieceError(f"a token id outside the vocabulary of {vocab_size} was about to be written")
        yield batch


def _write_file(directory: str, name: str, write) -> ShardFile:
    done: list[ShardFile] = []

    def checked(file) -> None:
        writer = storage.ChecksumWriter(file)
        write(writer)
        done.append(ShardFile(name, writer.size, writer.checksum))

    storage.write_file(storage.join(directory, name), checked)
    return done[0]


def _write_parquet(directory: str, name: str, vocab_size: int, batches: Iterator[TokenBatch]) -> list[ShardFile]:
    def write(file) -> None:
        # No column repeats enough for a dictionary: of ids it takes time, and more bytes than it saves.
        with pq.ParquetWriter(
            pa.PythonFile(file, mode="w"), PARQUET_SCHEMA, use_dictionary=False, compression="zstd", compression_level=1
        ) as writer:
            pending: list[pa.RecordBatch] = []
            size = 0
            for batch in batches:
                pending.append(_parquet_rows(batch))
                size += len(batch.tokens)
                if size >= _ROW_GROUP_TOKENS:
                    writer.write_table(pa.Table.from_batches(pending), row_group_size=1 << 30)
                    pending, size = [], 0
            if pending:
                writer.write_table(pa.Table.from_batches(pending), row_group_size=1 << 30)

    return [_write_file(directory, f"{name}.parquet", write)]


def _parquet_rows(batch: TokenBatch) -> pa.RecordBatch:
    tokens = pa.ListArray.from_arrays(pa.array(batch.offsets.astype(np.int32)), pa.array(batch.tokens, pa.int32()))
    counts = pa.array(np.diff(batch.offsets), pa.int64())
    return pa.RecordBatch.from_arrays([batch.ids, tokens, counts], schema=PARQUET_SCHEMA)


def _write_bin(directory: str, name: str, vocab_size: int, batches: Iterator[TokenBatch]) -> list[ShardFile]:
    dtype = token_dtype(vocab_size)
    ends: list[np.ndarray] = []

    def write_tokens(file) -> None:
        total = 0
        for batch in batches:
            if len(batch.tokens):
                file.write(batch.tokens.astype(dtype, copy=False).data)
            ends.append(batch.offsets[1:] + total)
            total += len(batch.tokens)

    tokens = _write_file(directory, f"{name}.bin", write_tokens)
    all_ends = np.concatenate([np.empty(0, np.int64), *ends])
    index = _write_file(directory, f"{name}.ends.npy", lambda file: np.lib.format.write_array(file, all_ends))
    return [tokens, index]
