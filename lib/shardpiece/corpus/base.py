"""What planning and reading speak of: selections, splits, input files, plans, batches; and what a format has to give.

A split has an identity (path, and rows or bytes) that does not depend on the cluster, so what was done with it can be
recorded and repeated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardpiece.corpus.streams import line_number
from shardpiece.errors import DataError, InputError

# A split with more text than this becomes several: a row group or a file may hold gigabytes.
SPLIT_BYTES = 16 << 20
BATCH_BYTES = 8 << 20
BATCH_ROWS = 4_096
# To say which line it is, a file is read again up to here.
_COUNTED_FOR_MESSAGES = 4 << 30


@dataclass(frozen=True)
class Columns:
    """The columns a job reads; ``id`` and ``group`` may be absent. ``metadata``: further ones that are carried along."""

    text: str
    id: str | None = None
    group: str | None = None
    metadata: tuple[str, ...] = ()

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name in (self.text, self.id, self.group, *self.metadata) if name))


@dataclass(frozen=True)
class Sample:
    """The share ``fraction`` of all documents, chosen by a hash of ``seed`` and id: the same ones as a corpus grows, and
    those of a smaller fraction are among those of a larger one."""

    fraction: float
    seed: int = 0


@dataclass(frozen=True)
class Selection:
    """What a job reads of its input. ``where``: a condition (see ``corpus.where``); ``text_documents``: what a document
    of a text file is, a "line" or the "file"; ``bad_rows``: lines that are no JSON object of the expected types are an
    "error", or left out and counted ("skip").

    Planning adds ``types``, those of the metadata columns and of columns whose files do not state one (JSON Lines), and
    ``partitions``, which columns are in the paths of the files (key=value), not in the files."""

    columns: Columns
    where: str | None = None
    sample: Sample | None = None
    text_documents: str = "line"
    bad_rows: str = "error"
    types: pa.Schema = field(default_factory=lambda: pa.schema([]))
    partitions: tuple[str, ...] = ()

    def type_of(self, name: str) -> pa.DataType | None:
        index = self.types.get_field_index(name)
        return None if index < 0 else self.types.field(index).type


@dataclass(frozen=True, order=True)
class Split:
    """Rows of one row group of a Parquet file: ``rows`` of them after the first ``skip``; ``first_row`` is the first
    one's index in the file, ``text_bytes`` its share of the text column's uncompressed size as the footer states it."""

    path: str
    row_group: int
    skip: int
    first_row: int
    rows: int
    text_bytes: int

    def beginning(self, size: int) -> "Split | None":
        """A split of the first rows, about ``size`` bytes of text; None where reading them would decode others too."""
        if self.skip or not self.rows:
            return None
        rows = max(1, min(self.rows, size // max(1, self.text_bytes // self.rows)))
        # Batches of a split are of as many rows as make up 8 MiB: let that be these, so that no others are decoded.
        return replace(self, rows=rows, text_bytes=BATCH_BYTES)


@dataclass(frozen=True, order=True)
class BatchRange:
    """Some record batches of an Arrow file. ``first_batch`` -1: a stream, which can only be read as a whole; its rows
    are not known (-1)."""

    path: str
    first_batch: int
    batches: int
    first_row: int
    rows: int
    text_bytes: int

    def beginning(self, size: int) -> "BatchRange | None":
        return self if self.first_batch < 0 else replace(self, batches=1)


@dataclass(frozen=True, order=True)
class ByteRange:
    """The lines of a file that begin in bytes ``start`` to ``end``, or a whole file (compressed, or one document).

    ``format``: "jsonl", "text" (a document per line) or "document"; ``compression``: "" or Arrow's name of it."""

    path: str
    start: int
    end: int
    format: str
    compression: str
    text_bytes: int

    @property
    def rows(self) -> int:
        """Not known before it is read."""
        return -1

    def beginning(self, size: int) -> "ByteRange | None":
        return self if self.compression else replace(self, end=min(self.end, self.start + max(1, size)))


@dataclass(frozen=True)
class FrameRows:
    """A partition of a DataFrame that Spark reads; ``path`` is what the input is called."""

    path: str
    partition: int


AnySplit = Split | BatchRange | ByteRange


@dataclass(frozen=True, order=True)
class InputFile:
    """A file as it was planned. ``rows``: -1 where that is not known before it is read. ``footer``: XXH3-64 of a Parquet
    file's metadata, which any rewriting changes; of other files, of their size, first megabyte and last 64 KiB."""

    path: str
    size: int
    rows: int
    footer: str


@dataclass(frozen=True, order=True)
class SkippedFile:
    """A file that was left out (``bad_files: skip``), and why."""

    path: str
    size: int
    problem: str


@dataclass(frozen=True)
class InputPlan:
    """The files and splits of a job's input, both in order of path and position, and the selection to read them with."""

    files: list[InputFile]
    splits: list[AnySplit]
    selection: Selection
    skipped: list[SkippedFile] = field(default_factory=list)

    @property
    def rows(self) -> int | None:
        """Rows of all files; None when that is not known of all."""
        return None if any(file.rows < 0 for file in self.files) else sum(file.rows for file in self.files)

    @property
    def text_bytes(self) -> int:
        """About the bytes of text: compressed files are taken for a third of theirs, lines of JSON for text."""
        return sum(split.text_bytes for split in self.splits)

    @property
    def metadata(self) -> pa.Schema | None:
        """The schema of the metadata columns, None without any."""
        names = self.selection.columns.metadata
        return pa.schema([self.selection.types.field(name) for name in names]) if names else None

    def ledger(self) -> list[dict]:
        """What was read, for manifests and plan keys."""
        return [asdict(file) for file in self.files]

    def options(self) -> dict[str, Any]:
        """What of the selection decides which documents are read, for manifests and plan keys; what is as by default is
        not in it."""
        selection = self.selection
        found: dict[str, Any] = {}
        if selection.where is not None:
            found["where"] = selection.where
        if selection.sample is not None:
            found["sample"] = {**asdict(selection.sample), "id_column": selection.columns.id}
        if selection.columns.metadata:
            found["metadata"] = {field.name: str(field.type) for field in self.metadata}
        if any(isinstance(split, ByteRange) for split in self.splits):
            found |= {"text_documents": selection.text_documents, "bad_rows": selection.bad_rows}
        if self.skipped:
            found["skipped_files"] = [asdict(file) for file in self.skipped]
        return found


@dataclass(frozen=True)
class Batch:
    """Documents of a split: ``data`` has the selected columns. ``positions``: int64 [rows], where each is in its file: its
    row, in files of lines the byte it begins at (after decompression). ``bad_rows``: lines left out since the batch before,
    ``filtered_rows``: those that the condition or the sample left out."""

    split: AnySplit | FrameRows
    positions: np.ndarray
    data: pa.RecordBatch
    bad_rows: int = 0
    filtered_rows: int = 0

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def text_column(self) -> str:
        """The first column is the text."""
        return self.data.schema.names[0]

    def __getitem__(self, name: str) -> pa.Array:
        return self.data[name]

    def slice(self, first: int, rows: int) -> "Batch":
        return Batch(self.split, self.positions[first : first + rows], self.data.slice(first, rows))

    def filter(self, chosen: np.ndarray) -> "Batch":
        """The documents where ``chosen`` (bool [rows]) is set."""
        return Batch(self.split, self.positions[chosen], self.data.filter(pa.array(chosen)))

    def place(self, index: int) -> str:
        """Where document ``index`` is, for messages."""
        return place(self.split, int(self.positions[index]))

    def plain(self, column: str) -> pa.Array:
        """A column of ids or groups as strings. Raises InputError naming the file when its values are not text."""
        try:
            values = self.data[column].cast(pa.string())
            values.validate(full=True)
            return values
        except pa.ArrowException as error:
            raise InputError(
                f"{self.split.path}: column {column!r} cannot be read as text ({one_line(error)})"
            ) from None

    def metadata(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Columns as they are. Raises InputError naming the file for text in them that is no UTF-8."""
        chosen = self.data.select(list(columns))
        try:
            chosen.validate(full=True)
        except pa.ArrowException as error:
            raise InputError(f"{self.split.path}: a metadata column cannot be read ({one_line(error)})") from None
        return chosen

    def ids(self, column: str | None, required_for: str = "") -> pa.Array:
        """The id column as strings, or without one PATH:POSITION. With ``required_for`` a null id raises DataError."""
        if column is None:
            places = pa.array(self.positions, pa.int64()).cast(pa.string())
            return pc.binary_join_element_wise(pa.scalar(self.split.path), places, ":")
        if pa.types.is_floating(self.data[column].type):
            raise InputError(
                f"{self.split.path}: column {column!r} has numbers with fractions, which are no ids: they are rounded. Make "
                f"them text or whole numbers"
            )
        ids = self.plain(column)
        if required_for and ids.null_count:
            row = ids.is_null().to_pylist().index(True)
            raise DataError(f"{self.place(row)}: the document has no id, and {required_for} goes by ids")
        return ids


@dataclass(frozen=True)
class Found:
    """What a format finds in a file: the plan of it, and its columns. ``schema``: None where there is no row to tell."""

    file: InputFile
    splits: list[AnySplit]
    schema: pa.Schema | None


class SourceFormat(Protocol):
    """A module per format: ``plan`` looks at a file as little as it can, ``read`` gives all rows of neighbouring splits,
    unfiltered. Both raise pyarrow's errors, OSError and InputError."""

    def plan(self, file, selection: Selection, needed: list[str]) -> Found: ...

    def read(self, splits: list, selection: Selection, columns: list[str]) -> Iterator[Batch]: ...


def place(split: AnySplit | FrameRows, position: int) -> str:
    """Where a document is, for messages."""
    if isinstance(split, FrameRows):
        return f"{split.path}, row {position} of partition {split.partition}"
    if not isinstance(split, ByteRange):
        return f"{split.path}, row {position}"
    if split.format == "document":
        return split.path
    if position > _COUNTED_FOR_MESSAGES:
        return f"{split.path}, the line at byte {position:,}"
    return f"{split.path}, line {line_number(split.path, split.compression, position):,}"


def small_batches(batch: Batch, text_column: str) -> Iterator[Batch]:
    """Halves of halves until each is small: a footer may state far less than a column decodes to, when documents
    repeat and Parquet stores each once."""
    if len(batch) > 1 and batch[text_column].nbytes > BATCH_BYTES:
        middle = len(batch) // 2
        yield from small_batches(batch.slice(0, middle), text_column)
        yield from small_batches(batch.slice(middle, len(batch) - middle), text_column)
    else:
        yield batch


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type that takes the values of both. Raises pa.ArrowException when there is none."""
    schemas = [pa.schema([("x", kind)]) for kind in (a, b)]
    return pa.unify_schemas(schemas, promote_options="permissive").field("x").type


def is_text(kind: pa.DataType) -> bool:
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or kind in (pa.string_view(), pa.binary_view())
    )


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
