"""``parquet``: ``NAME.parquet``. Of documents, a row each: id (string), tokens (list of int32), n_tokens (int64), and the
carried columns; of packed rows: tokens, n_tokens, doc_ids (list of string) and doc_lengths (list of int32), where what the
lengths leave of a row is padding."""

from collections.abc import Iterator
from contextlib import closing, suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardpiece import storage
from shardpiece.errors import OutputError
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written
from shardpiece.shards.formats.columns import TableRows, check_metadata, table_rows
from shardpiece.shards.formats.files import ShardFiles

_ROW_GROUP_TOKENS = 4 << 20


class ParquetFormat:
    name = "parquet"
    suffixes = (r"\.parquet",)
    extras = ()
    carries = frozenset({"ids", "metadata", "pieces"})

    def dtype(self, vocab_size: int) -> np.dtype:
        return np.dtype(np.int32)

    def check(self, spec: ShardSpec) -> None:
        check_metadata(spec, self.name, ("id", "tokens", "n_tokens"))

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_ParquetWriter":
        return _ParquetWriter(directory, name, spec)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        return []

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        for part in files:
            path = storage.join(directory, part["name"])
            fs, inner = storage.filesystem(path)
            if storage.is_local(path):
                with closing(pq.ParquetFile(inner, memory_map=True)) as parquet:
                    yield from table_rows(parquet.iter_batches(1024), "tokens")
            else:
                # No threads: one that lets go of Python's file when the interpreter ends aborts it.
                with fs.open(inner, "rb") as file, closing(pq.ParquetFile(file)) as parquet:
                    yield from table_rows(parquet.iter_batches(1024, use_threads=False), "tokens")


class _ParquetWriter:
    def __init__(self, directory: str, name: str, spec: ShardSpec):
        self._files = ShardFiles(directory, "parquet")
        self._rows = TableRows(spec, "tokens", "n_tokens", _ROW_GROUP_TOKENS, self._write_row_group)
        # No column repeats enough for a dictionary: of ids it takes time, and more bytes than it saves.
        self._parquet = pq.ParquetWriter(
            pa.PythonFile(self._files.open(f"{name}.parquet"), mode="w"),
            self._rows.schema,
            use_dictionary=False,
            compression="zstd",
            compression_level=1,
        )

    def write(self, batch: TokenBatch) -> None:
        self._rows.add(batch)

    def _write_row_group(self, rows: pa.RecordBatch) -> None:
        self._parquet.write_table(pa.Table.from_batches([rows]), row_group_size=1 << 30)

    def close(self) -> Written:
        self._rows.flush()
        self._parquet.close()
        return Written(self._files.commit())

    def discard(self) -> None:
        with suppress(OSError, pa.ArrowException, OutputError):  # a footer for nobody, which may not fit on the disk
            self._parquet.close()
        self._files.discard()
