"""Splits: row groups of the input, or ranges of rows of large ones, planned on the driver, read by executors.

A split has an identity (path and rows) that does not depend on the cluster, so what was done with it can be
recorded and repeated. Executors open splits through fsspec and pyarrow; measured on two cores that moves about twice
the bytes per second of ``spark.read.parquet(...).mapInArrow(...)``.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from shardpiece import storage
from shardpiece.corpus.sources import SourceFile
from shardpiece.errors import InputError

# A row group with more text than this becomes several splits: a single one may hold a whole file of gigabytes.
# Reading one of them decodes the rows before it too, which costs little beside tokenizing.
_SPLIT_BYTES = 32 << 20
_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 4_096


@dataclass(frozen=True)
class Columns:
    """The columns a job reads; ``id`` and ``group`` may be absent."""

    text: str
    id: str | None = None
    group: str | None = None

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name in (self.text, self.id, self.group) if name))


@dataclass(frozen=True, order=True)
class Split:
    """Rows of one row group: ``rows`` of them after the first ``skip``; ``first_row`` is the first one's index in
    the file, ``text_bytes`` its share of the text column's uncompressed size as the Parquet footer states it."""

    path: str
    row_group: int
    skip: int
    first_row: int
    rows: int
    text_bytes: int


def plan_splits(files: list[SourceFile], columns: Columns) -> list[Split]:
    """Read every footer and list the splits in order of path and position.

    Raises InputError for a file that is not Parquet, a missing column, or a column of the wrong type.
    """
    with ThreadPoolExecutor(16) as pool:
        return [split for splits in pool.map(lambda file: _file_splits(file, columns), files) for split in splits]


def pack_splits(splits: list[Split], target_bytes: int) -> list[list[Split]]:
    """Consecutive splits in groups of about ``target_bytes`` of text: a function of the splits alone."""
    groups: list[list[Split]] = []
    size = 0
    for split in splits:
        if not groups or size + split.text_bytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(split)
        size += split.text_bytes
    return groups


def ledger(files: list[SourceFile], splits: list[Split]) -> list[dict]:
    """What was read, for manifests: path, bytes and rows of every file."""
    rows: dict[str, int] = {}
    for split in splits:
        rows[split.path] = rows.get(split.path, 0) + split.rows
    return [asdict(file) | {"rows": rows.get(file.path, 0)} for file in files]


def read_split(split: Split, columns: Columns) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The split's batches of at most 8 MB of text (or one document), each with the index of its first row in the
    file. Where the batches are cut depends on the file alone."""
    row_bytes = max(1, split.text_bytes // max(1, split.rows))
    batch_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
    row = split.first_row - split.skip
    end = split.first_row + split.rows
    try:
        with closing(_open(split.path)) as parquet:
            for batch in parquet.iter_batches(batch_rows, row_groups=[split.row_group], columns=columns.names()):
                first, last = max(row, split.first_row), min(row + batch.num_rows, end)
                wanted = batch.slice(max(0, first - row), max(0, last - first))
                row += batch.num_rows
                for part in _small_batches(wanted, columns.text):
                    if part.num_rows:
                        yield first, part
                        first += part.num_rows
                if row >= end:
                    break
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{split.path}, row group {split.row_group}: cannot be read ({_one_line(error)})") from None


def _small_batches(batch: pa.RecordBatch, text_column: str) -> Iterator[pa.RecordBatch]:
    """Halves of halves until each is small: a footer may state far less than a column decodes to, when documents
    repeat and Parquet stores each once."""
    if batch.num_rows > 1 and batch[text_column].nbytes > _BATCH_BYTES:
        middle = batch.num_rows // 2
        yield from _small_batches(batch.slice(0, middle), text_column)
        yield from _small_batches(batch.slice(middle), text_column)
    else:
        yield batch


def _open(path: str) -> pq.ParquetFile:
    if storage.is_local(path):
        return pq.ParquetFile(storage.filesystem(path)[1], memory_map=True)
    fs, inner = storage.filesystem(path)
    return pq.ParquetFile(fs.open(inner, "rb"), pre_buffer=True)


def _file_splits(file: SourceFile, columns: Columns) -> list[Split]:
    try:
        parquet = _open(file.path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file.path}: not a readable Parquet file ({_one_line(error)})") from None
    with closing(parquet):
        schema = parquet.schema_arrow
        for role, name in (("text", columns.text), ("id", columns.id), ("group", columns.group)):
            if name is None:
                continue
            if name not in schema.names:
                raise InputError(
                    f"{file.path}: no column {name!r} (its columns: {', '.join(schema.names) or 'none'}). "
                    f"Choose one with --{role}-column."
                )
            kind = schema.field(name).type
            if role == "text" and not _is_text(kind):
                raise InputError(f"{file.path}: column {name!r} holds {kind}, not text (string or binary)")
            if role != "text" and pa.types.is_nested(kind):
                raise InputError(f"{file.path}: column {name!r} holds {kind}; a {role} must be a plain value")
        metadata = parquet.metadata
        leaf = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == columns.text)
        splits = []
        row = 0
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            rows, size = group.num_rows, group.column(leaf).total_uncompressed_size
            parts = min(rows, -(-size // _SPLIT_BYTES) or 1)
            for part in range(parts):
                skip, end = rows * part // parts, rows * (part + 1) // parts
                splits.append(Split(file.path, g, skip, row + skip, end - skip, size * (end - skip) // rows))
            row += rows
        return splits


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or kind in (pa.string_view(), pa.binary_view())
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
