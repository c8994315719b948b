"""What the stages share: tasks over splits, live counters, results as JSON rows."""

import gc
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.corpus.base import AnySplit, Batch, Columns, Selection
from shardpiece.corpus.splits import read_batches
from shardpiece.errors import DataError, DocumentError, ExecutorError, ShardpieceError, one_line
from shardpiece.text.documents import Documents


@dataclass(frozen=True)
class Counters:
    """Accumulators that executors add to, for progress only: a retried task counts twice here, never in results."""

    planned: Accumulator
    documents: Accumulator
    bytes: Accumulator
    tokens: Accumulator

    @classmethod
    def create(cls, spark: SparkSession) -> "Counters":
        return cls(*(spark.sparkContext.accumulator(0) for _ in range(4)))

    def reader(self, total: int, *names: str) -> Callable[[], tuple[float, dict[str, float]]]:
        """For StageProgress: the fraction of ``total`` planned bytes done, and the named counters."""

        def read() -> tuple[float, dict[str, float]]:
            fraction = min(1.0, self.planned.value / total) if total else 1.0
            return fraction, {name: getattr(self, name).value for name in names}

        return read


def run_tasks(task: Callable[[int], Iterator[pa.RecordBatch]]) -> Callable:
    """A mapInArrow function over ``spark.range(n)`` that runs ``task(i)`` for every i it is given."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            for batch in batches:
                for i in batch["id"].to_pylist():
                    yield from task(i)

    return run


_FREEZES = 4
_freezes = 0


def _freeze_what_stays() -> None:
    """Spark's worker collects garbage after every task, a tenth of a second with all that Numba and Arrow keep for good. When
    a task begins, all that is there has just survived that: the first tasks of a process, which load modules and kernels,
    take it out of later collections."""
    global _freezes
    if _freezes < _FREEZES:
        _freezes += 1
        gc.freeze()


@contextmanager
def errors_for_driver() -> Iterator[None]:
    """What a task runs in: wraps its error so that the message survives Spark."""
    _freeze_what_stays()
    try:
        yield
    except ExecutorError:
        raise
    except ShardpieceError as error:
        raise ExecutorError(error) from None
    except Exception as error:
        raise ExecutorError(ShardpieceError(f"a task failed: {one_line(error)}")) from error


def read_documents(
    splits: tuple[AnySplit, ...] | list[AnySplit], selection: Selection | Columns, invalid_utf8: str
) -> Iterator[tuple[Batch, Documents]]:
    """The batches of some splits, and the text in them."""
    return with_documents(read_batches(splits, selection), invalid_utf8)


def with_documents(batches: Iterator[Batch], invalid_utf8: str) -> Iterator[tuple[Batch, Documents]]:
    """Batches, and the text in them."""
    for batch in batches:
        with document_errors(batch):
            documents = Documents.from_arrow(batch[batch.text_column], invalid_utf8)
        yield batch, documents


@contextmanager
def document_errors(batch: Batch, first: int = 0, owners: np.ndarray | None = None) -> Iterator[None]:
    """Turn a DocumentError into a DataError with the file and the row. ``first``: the batch's document that is number 0
    for what is done; ``owners`` gives the document of each piece where documents were cut."""
    try:
        yield
    except DocumentError as error:
        index = error.index if owners is None else int(owners[error.index])
        raise DataError(f"{batch.place(first + index)}: {error.problem}") from None


def result_batch(results: list[dict]) -> pa.RecordBatch:
    """Results for the driver as rows of one JSON string (RESULT_SCHEMA)."""
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(r) for r in results], pa.string())], names=["result"])


RESULT_SCHEMA = "result string"


def plan_key(**parts) -> str:
    """SHA-256 over everything that decides a stage's output; equal keys mean equal output."""
    return hashlib.sha256(storage.canonical_json(parts)).hexdigest()
