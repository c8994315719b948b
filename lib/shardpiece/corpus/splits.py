"""Splits: row groups of the input, or ranges of rows of large ones, planned on the driver, read by executors.

A split has an identity (path and rows) that does not depend on the cluster, so what was done with it can be
recorded and repeated. Executors open splits through fsspec and pyarrow; measured on two cores that moves about twice
the bytes per second of ``spark.read.parquet(...).mapInArrow(...)``.
"""

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from shardpiece import storage
from shardpiece.corpus.sources import SourceFile
from shardpiece.errors import InputError

# A row group with more text than this becomes several splits: a single one may hold a whole file of gigabytes.
# Reading one of them decodes the rows before it too, so there are not many, and in object stores only one.
_SPLIT_BYTES = 16 << 20
_SPLITS_PER_ROW_GROUP = 8
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


@dataclass(frozen=True, order=True)
class InputFile:
    """A file as it was planned: ``footer`` is the XXH3-64 of its Parquet metadata, which any rewriting changes."""

    path: str
    size: int
    rows: int
    footer: str


@dataclass(frozen=True)
class InputPlan:
    """The files and splits of a job's input, both in order of path and position."""

    files: list[InputFile]
    splits: list[Split]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def text_bytes(self) -> int:
        return sum(split.text_bytes for split in self.splits)

    def ledger(self) -> list[dict]:
        """What was read, for manifests and plan keys."""
        return [asdict(file) for file in self.files]


def plan_input(files: list[SourceFile], columns: Columns) -> InputPlan:
    """Read every footer and list the splits.

    Raises InputError for a file that is not Parquet, a missing column, or a column of the wrong type.
    """
    with ThreadPoolExecutor(16) as pool:
        planned = list(pool.map(lambda file: _plan_file(file, columns), files))
    return InputPlan([file for file, _ in planned], [split for _, splits in planned for split in splits])


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


def read_splits(splits: Sequence[Split], columns: Columns) -> Iterator[tuple[Split, int, pa.RecordBatch]]:
    """The batches of some splits, at most 8 MB of text (or one document) each, with their split and the index of their
    first row in the file. Where batches are cut depends on the file and the split alone; neighbours of one row group are
    decoded together."""
    for (path, row_group, start, batch_rows), members in groupby(splits, _decoded_as):
        neighbours = list(members)
        row = start
        end = max(split.first_row + split.rows for split in neighbours)
        try:
            with _open(path) as parquet:
                for batch in parquet.iter_batches(batch_rows, row_groups=[row_group], columns=columns.names()):
                    for split in neighbours:
                        first, last = max(row, split.first_row), min(row + batch.num_rows, split.first_row + split.rows)
                        if first >= last:
                            continue
                        for part in _small_batches(batch.slice(first - row, last - first), columns.text):
                            yield split, first, part
                            first += part.num_rows
                    row += batch.num_rows
                    if row >= end:
                        break
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}, row group {row_group}: cannot be read ({_one_line(error)})") from None


def read_split(split: Split, columns: Columns) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The split's batches, each with the index of its first row in the file: see ``read_splits``."""
    for _, row, batch in read_splits([split], columns):
        yield row, batch


def _decoded_as(split: Split) -> tuple[str, int, int, int]:
    """(path, row group, its first row, rows to decode at once): equal for splits that are decoded together."""
    row_bytes = max(1, split.text_bytes // max(1, split.rows))
    batch_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
    return split.path, split.row_group, split.first_row - split.skip, batch_rows


def _small_batches(batch: pa.RecordBatch, text_column: str) -> Iterator[pa.RecordBatch]:
    """Halves of halves until each is small: a footer may state far less than a column decodes to, when documents
    repeat and Parquet stores each once."""
    if batch.num_rows > 1 and batch[text_column].nbytes > _BATCH_BYTES:
        middle = batch.num_rows // 2
        yield from _small_batches(batch.slice(0, middle), text_column)
        yield from _small_batches(batch.slice(middle), text_column)
    else:
        yield batch


@contextmanager
def _open(path: str) -> Iterator[pq.ParquetFile]:
    fs, inner = storage.filesystem(path)
    if storage.is_local(path):
        with closing(pq.ParquetFile(inner, memory_map=True)) as parquet:
            yield parquet
    else:
        # Read ahead by megabytes, never a whole column chunk.
        with fs.open(inner, "rb") as file, closing(pq.ParquetFile(file, buffer_size=4 << 20)) as parquet:
            yield parquet


def _plan_file(file: SourceFile, columns: Columns) -> tuple[InputFile, list[Split]]:
    try:
        with _open(file.path) as parquet:
            _check_columns(file.path, parquet.schema_arrow, columns)
            splits = _file_splits(file.path, parquet.metadata, columns.text)
            planned = InputFile(file.path, file.size, parquet.metadata.num_rows, _footer_hash(parquet.metadata))
            return planned, splits
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file.path}: not a readable Parquet file ({_one_line(error)})") from None


def _check_columns(path: str, schema: pa.Schema, columns: Columns) -> None:
    for role, name in (("text", columns.text), ("id", columns.id), ("group", columns.group)):
        if name is None:
            continue
        if name not in schema.names:
            raise InputError(
                f"{path}: no column {name!r} (its columns: {', '.join(schema.names) or 'none'}). "
                f"Choose one with --{role}-column."
            )
        if schema.names.count(name) > 1:
            raise InputError(f"{path}: several columns are named {name!r}")
        kind = schema.field(name).type
        if role == "text" and not _is_text(kind):
            raise InputError(f"{path}: column {name!r} holds {kind}, not text (string or binary)")
        if role != "text" and pa.types.is_nested(kind):
            raise InputError(f"{path}: column {name!r} holds {kind}; a {role} must be a plain value")


def _file_splits(path: str, metadata: pq.FileMetaData, text_column: str) -> list[Split]:
    leaf = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == text_column)
    most = _SPLITS_PER_ROW_GROUP if storage.is_local(path) else 1
    splits = []
    row = 0
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        rows, size = group.num_rows, group.column(leaf).total_uncompressed_size
        parts = min(rows, most, -(-size // _SPLIT_BYTES) or 1)
        for part in range(parts):
            skip, end = rows * part // parts, rows * (part + 1) // parts
            splits.append(Split(path, g, skip, row + skip, end - skip, size * (end - skip) // rows))
        row += rows
    return splits


def _footer_hash(metadata: pq.FileMetaData) -> str:
    buffer = io.BytesIO()
    metadata.write_metadata_file(buffer)
    return xxhash.xxh3_64_hexdigest(buffer.getvalue())


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
