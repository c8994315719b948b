"""``arrow``, for Hugging Face datasets: ``NAME.arrow``, an Arrow IPC stream, and beside the shards ``state.json`` and
``dataset_info.json``, with which ``datasets.load_from_disk`` opens the directory.

Of documents, a row each: id (string), input_ids (list of int32) and the carried columns; of packed rows: input_ids, doc_ids
(list of string) and doc_lengths (list of int32), where what the lengths leave of a row is padding.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa

from shardpiece import storage
from shardpiece.errors import OutputError
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written
from shardpiece.shards.formats.columns import TableRows, check_metadata, table_rows
from shardpiece.shards.formats.files import ShardFiles, write_files

_BATCH_TOKENS = 1 << 20
STATE, INFO = "state.json", "dataset_info.json"


class ArrowFormat:
    name = "arrow"
    suffixes = (r"\.arrow",)
    extras = (STATE, INFO)
    carries = frozenset({"ids", "metadata", "pieces"})

    def dtype(self, vocab_size: int) -> np.dtype:
        return np.dtype(np.int32)

    def check(self, spec: ShardSpec) -> None:
        check_metadata(spec, self.name, ("id", "input_ids"))

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_ArrowWriter":
        return _ArrowWriter(directory, name, spec)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        files = [file for shard in shards for file in shard["files"]]
        content = storage.canonical_json([file["checksum"] for file in files])
        state = {
            "_data_files": [{"filename": file["name"]} for file in files],
            # What datasets keeps the results of its transformations by.
            "_fingerprint": storage.checksum_bytes(content).removeprefix("xxh3:"),
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        info = {"citation": "", "description": "", "features": None, "homepage": "", "license": ""}
        contents = {STATE: storage.pretty_json(state), INFO: storage.pretty_json(info)}
        return write_files(directory, self.name, contents)

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        for part in files:
            fs, inner = storage.filesystem(storage.join(directory, part["name"]))
            with fs.open(inner, "rb") as file, pa.ipc.open_stream(file) as stream:
                yield from table_rows(stream, "input_ids")


class _ArrowWriter:
    def __init__(self, directory: str, name: str, spec: ShardSpec):
        self._files = ShardFiles(directory, "arrow")
        self._open = True
        self._rows = TableRows(spec, "input_ids", None, _BATCH_TOKENS, self._write_batch)
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._files.open(f"{name}.arrow"), mode="w"), self._rows.schema)

    def write(self, batch: TokenBatch) -> None:
        self._rows.add(batch)

    def _write_batch(self, rows: pa.RecordBatch) -> None:
        self._stream.write_batch(rows)

    def close(self) -> Written:
        self._rows.flush()
        self._stream.close()
        self._open = False
        return Written(self._files.commit())

    def discard(self) -> None:
        if self._open:
            with suppress(OSError, pa.ArrowException, OutputError):  # an end for nobody, which may not fit on the disk
                self._stream.close()
        self._files.discard()
