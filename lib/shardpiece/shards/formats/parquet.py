"""``parquet``: ``NAME.parquet``, one row per document: id (string), tokens (list of int32), n_tokens (int64)."""

from collections.abc import Iterator
from contextlib import closing, suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardpiece import storage
from shardpiece.errors import OutputError
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written, shard_file

SCHEMA = pa.schema([("id", pa.string()), ("tokens", pa.list_(pa.int32())), ("n_tokens", pa.int64())])
_ROW_GROUP_TOKENS = 4 << 20


class ParquetFormat:
    name = "parquet"
    suffixes = (r"\.parquet",)
    extras = ()
    carries = frozenset({"ids"})

    def dtype(self, vocab_size: int) -> np.dtype:
        return np.dtype(np.int32)

    def check(self, spec: ShardSpec) -> None:
        pass

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_ParquetWriter":
        return _ParquetWriter(directory, name)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        return []

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        fs, inner = storage.filesystem(storage.join(directory, files[0]["name"]))
        with fs.open(inner, "rb") as file, closing(pq.ParquetFile(file)) as parquet:
            for batch in parquet.iter_batches(1024):
                tokens = batch["tokens"]
                values = tokens.values.to_numpy()
                offsets = tokens.offsets.to_numpy()
                for i, name in enumerate(batch["id"].to_pylist()):
                    yield Row(name, values[offsets[i] : offsets[i + 1]])


class _ParquetWriter:
    def __init__(self, directory: str, name: str):
        self._name = name
        self._file = storage.StagedFile(storage.join(directory, f"{name}.parquet"))
        # No column repeats enough for a dictionary: of ids it takes time, and more bytes than it saves.
        self._parquet = pq.ParquetWriter(
            pa.PythonFile(self._file, mode="w"), SCHEMA, use_dictionary=False, compression="zstd", compression_level=1
        )
        self._pending: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, batch: TokenBatch) -> None:
        self._pending.append(_rows(batch))
        self._size += len(batch.tokens)
        if self._size >= _ROW_GROUP_TOKENS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        self._parquet.write_table(pa.Table.from_batches(self._pending), row_group_size=1 << 30)
        self._pending, self._size = [], 0

    def close(self) -> Written:
        if self._pending:
            self._write_row_group()
        self._parquet.close()
        self._file.commit()
        return Written([shard_file(self._file, f"{self._name}.parquet", "parquet")])

    def discard(self) -> None:
        with suppress(OSError, pa.ArrowException, OutputError):  # a footer for nobody, which may not fit on the disk
            self._parquet.close()
        self._file.discard()


def _rows(batch: TokenBatch) -> pa.RecordBatch:
    tokens = pa.ListArray.from_arrays(pa.array(batch.offsets.astype(np.int32)), pa.array(batch.tokens, pa.int32()))
    counts = pa.array(np.diff(batch.offsets), pa.int64())
    return pa.RecordBatch.from_arrays([batch.ids, tokens, counts], schema=SCHEMA)
