"""What the count stage does on executors before the shuffle: documents in, packed words in ranges out."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import Broadcast, TaskContext

from shardpiece.corpus.base import Batch, Selection
from shardpiece.corpus.splits import read_batches
from shardpiece.pipeline.frames import frame_batches
from shardpiece.pipeline.tasks import Counters, document_errors, errors_for_driver, with_documents
from shardpiece.text.engine import TextEngine
from shardpiece.text.special import SpecialTokenCutter
from shardpiece.words.counter import WordCounter

# Rows of the shuffle: packed words, and the statistics of the tasks (JSON), which go with them so that a retried task counts
# once.
WORDS, STATISTICS_OF_TASK = 0, 1
ROW_NAMES = ("partition", "kind", "data")
ROW_SCHEMA = "partition int, kind byte, data binary"
STATISTICS = ("documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "words",
               "special_tokens", "long_words", "long_word_bytes", "filtered_documents", "bad_rows")  # fmt: skip


@dataclass(frozen=True)
class Counting:
    """How documents are counted: the same for all tasks."""

    selection: Selection
    engine: dict
    special_tokens: list[str]
    invalid_utf8: str
    memory: int
    max_word_bytes: int
    borders: list[bytes]
    counters: Counters

    def count(self, batches: Iterator[Batch], planned_bytes: int | None) -> Iterator[pa.RecordBatch]:
        """Rows of the shuffle for the documents of one task; ``planned_bytes``: its share of the progress, None where that is
        what it reads."""
        engine = TextEngine.from_spec(self.engine)
        counter = WordCounter(self.memory, self.max_word_bytes)

        def drain() -> Iterator[pa.RecordBatch]:
            for partition, packed in counter.drain_packed(self.borders):
                yield _row(partition, WORDS, packed)

        cutter = SpecialTokenCutter(self.special_tokens)
        statistics = dict.fromkeys(STATISTICS, 0)
        for batch, documents in with_documents(batches, self.invalid_utf8):
            cut = cutter.cut(documents)
            with document_errors(batch, owners=cut.owners):
                found = engine.split(cut.pieces, cut.at_start)
            groups = None
            if self.selection.columns.group:
                names = batch.plain(self.selection.columns.group).to_pylist()
                groups = [names[d] or "" for d in cut.owners.tolist()]
            yield from counter.add(found, groups, drain)
            statistics["documents"] += len(documents)
            statistics["null_documents"] += documents.nulls
            statistics["empty_documents"] += documents.empty
            statistics["replaced_documents"] += documents.replaced
            statistics["bytes"] += documents.size
            statistics["words"] += len(found.ends)
            statistics["special_tokens"] += cut.removed
            statistics["filtered_documents"] += batch.filtered_rows
            statistics["bad_rows"] += batch.bad_rows
            self.counters.documents.add(len(documents))
            self.counters.bytes.add(documents.size)
        yield from drain()
        statistics["long_words"] = counter.long_words
        statistics["long_word_bytes"] = counter.long_word_bytes
        self.counters.planned.add(statistics["bytes"] if planned_bytes is None else planned_bytes)
        yield _row(0, STATISTICS_OF_TASK, np.frombuffer(json.dumps(statistics).encode(), np.uint8))


@dataclass(frozen=True)
class CountTask:
    """Counts the splits of one task; called on executors."""

    tasks: Broadcast  # of list[list[AnySplit]]: unpickled once per worker, not once per task
    counting: Counting

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        splits = self.tasks.value[index]
        batches = read_batches(splits, self.counting.selection)
        yield from self.counting.count(batches, sum(split.text_bytes for split in splits))


@dataclass(frozen=True)
class FrameCountTask:
    """Counts a partition of a DataFrame, which ``mapInArrow`` hands over; ``name``: what the input is called."""

    name: str
    counting: Counting

    def __call__(self, frame: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            batches = frame_batches(frame, self.name, TaskContext.get().partitionId(), self.counting.selection)
            yield from self.counting.count(batches, None)


def _row(partition: int, kind: int, data: np.ndarray) -> pa.RecordBatch:
    """A batch of one row: some megabytes are as much as Spark should hold at a time."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays(
        [pa.array([partition], pa.int32()), pa.array([kind], pa.int8()), column], names=ROW_NAMES
    )
