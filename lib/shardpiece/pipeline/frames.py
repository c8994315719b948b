"""DataFrames as input: ``table:NAME`` and ``sql:QUERY``, which Spark reads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import to_arrow_schema

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.corpus.base import (
    BATCH_BYTES,
    BATCH_ROWS,
    Batch,
    Columns,
    FrameRows,
    InputFile,
    InputPlan,
    Selection,
    small_batches,
)
from shardpiece.corpus.sources import dataframe_of
from shardpiece.corpus.splits import needed_columns, select_batches, wrong_columns
from shardpiece.errors import ConfigError, InputError
from shardpiece.pipeline.inputs import selection_of
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.text.documents import Documents

# Spark's guess for what it knows nothing of is the largest number there is.
_MOST_BYTES = 1 << 50
_SAMPLED_DOCUMENTS = 1_024
_SAMPLED_CHARACTERS = 4_096


@dataclass(frozen=True)
class FrameInput:
    """``frame``: the columns that are needed, of every row; ``plan``: without splits, the table or query in place of a file;
    ``text_bytes``: what Spark takes its size for."""

    name: str
    frame: DataFrame
    plan: InputPlan
    text_bytes: int

    def measured(self) -> "FrameInput":
        """With its rows, bytes of text and the sum of the rows' hashes in its plan, so that another content is another input.
        Reads all of it."""
        columns = self.plan.selection.columns
        text = functions.col(_quoted(columns.text))
        hashed = [functions.col(_quoted(name)) for name in (columns.id, columns.group, columns.text) if name]
        sums = self.frame.select(
            functions.count("*").alias("rows"),
            functions.sum(functions.octet_length(text)).alias("bytes"),
            functions.sum(functions.xxhash64(*hashed).cast("decimal(20,0)")).alias("hash"),
        )
        with job_errors(self.name):
            found = collect(sums.sparkSession, sums)[0]
        [file] = self.plan.files
        size = int(found.bytes or 0)
        known = storage.checksum_bytes(f"{file.footer} {found.hash or 0}".encode()).partition(":")[2]
        plan = replace(self.plan, files=[InputFile(file.path, size, found.rows, known)])
        return replace(self, plan=plan, text_bytes=size)

    def beginnings(self, partitions: int) -> Iterator[tuple[Documents, list[str] | None]]:
        """The first characters of some documents, and their groups, to choose ``partitions`` borders by."""
        if partitions < 2:
            return
        columns = self.plan.selection.columns
        text = functions.substring(functions.col(_quoted(columns.text)), 1, _SAMPLED_CHARACTERS).alias("text")
        group = [] if columns.group is None else [functions.col(_quoted(columns.group)).cast("string").alias("group")]
        with job_errors(self.name):
            sample = self.frame.select(text, *group).limit(_SAMPLED_DOCUMENTS).toArrow()
        groups = [name or "" for name in sample["group"].to_pylist()] if group else None
        yield Documents.from_arrow(sample["text"]), groups


def open_frame(session: Callable[[], SparkSession], config: JobConfig, columns: Columns) -> FrameInput | None:
    """The DataFrame that is the input, None where files are. Raises InputError for a table, query or column that is not
    there, ConfigError for a sample without ids.

    It is identified by its name, its schema and the files that Spark says it reads. Where Spark names none (a view of
    values, a database) a change of the data does not show.
    """
    name = dataframe_of(config.input)
    if name is None:
        return None
    selection = selection_of(config, columns)
    if selection.sample is not None and selection.columns.id is None:
        raise ConfigError(f"sample goes by document ids, and rows of {name} have none without id_column")
    spark = session()
    kind, _, said = name.partition(":")
    try:
        with job_errors(name):
            frame = spark.table(said.strip()) if kind == "table" else spark.sql(said)
            schema = to_arrow_schema(frame.schema, prefers_large_types=True)
            files = sorted(frame.inputFiles())
    except InputError:
        raise
    except Exception as error:
        raise InputError(str(error).replace("failed in Spark: ", "cannot be read: ", 1)) from None
    needed = needed_columns(selection)
    problem = wrong_columns(schema, selection.columns)
    if problem:
        raise InputError(f"{name}: {problem}")
    if selection.where is not None:
        from shardpiece.corpus import where

        where.parse(selection.where).bind(schema)
    identity = storage.checksum_bytes(storage.canonical_json([name, frame.schema.json(), files]))
    types = to_arrow_schema(frame.schema)
    selection = replace(selection, types=pa.schema([types.field(column) for column in columns.metadata]))
    plan = InputPlan([InputFile(name, 0, -1, identity.partition(":")[2])], [], selection)
    return FrameInput(name, frame.select([_quoted(column) for column in needed]), plan, _size_of(frame))


def frame_batches(frame: Iterator[pa.RecordBatch], name: str, partition: int, selection: Selection) -> Iterator[Batch]:
    """The selected documents of a partition, as ``mapInArrow`` gives it, in batches like those of files."""
    return select_batches(_batches(frame, name, partition, selection.columns.text), selection, {})


def _batches(frame: Iterator[pa.RecordBatch], name: str, partition: int, text: str) -> Iterator[Batch]:
    split = FrameRows(name, partition)
    row = 0
    for data in frame:
        row_bytes = max(1, data[text].nbytes // max(1, data.num_rows))
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
        for first in range(0, data.num_rows, rows):
            part = data.slice(first, rows)
            yield from small_batches(Batch(split, np.arange(row, row + part.num_rows), part), text)
            row += part.num_rows


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _size_of(frame: DataFrame) -> int:
    """Bytes, as far as Spark's optimizer knows; what it has no idea of is one partition's worth."""
    size = int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
    return size if size < _MOST_BYTES else 0
