"""Encoding with a global shuffle: every document goes to the shard, and to the place in it, that its key says.

Tasks encode the corpus and send documents through Spark's shuffle (see ``exchange``); there is a partition for each shard that
is not finished, and what receives it puts the documents in order and writes the shard. Which documents a shard holds, and in
which order, follows from their keys and, where these are equal, from the order of the corpus: tasks, batches, retries and
restarts change nothing. Documents of finished shards are neither encoded nor sent again.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark import Broadcast, TaskContext
from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.corpus.base import AnySplit, Batch
from shardpiece.corpus.order import shard_of
from shardpiece.corpus.splits import pack_splits, read_batches
from shardpiece.pipeline.encode.documents import LEFT_OUT, STATISTICS, DocumentEncoder, Encoded, add_statistics
from shardpiece.pipeline.encode.exchange import ORDER, ROW_SCHEMA, Scatter, gather
from shardpiece.pipeline.encode.task import OUTPUT
from shardpiece.pipeline.frames import FrameInput, frame_batches
from shardpiece.pipeline.session import collect
from shardpiece.pipeline.tasks import RESULT_SCHEMA, Counters, errors_for_driver, result_batch, run_tasks
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import ShardBuilder, ShardLayout
from shardpiece.shards.plan import Shard
from shardpiece.shards.rows import from_arrow, to_arrow
from shardpiece.shards.statistics import Statistics
from shardpiece.shards.tails import write_tails

_LEAST_TASK = 16 << 20
_RECEIVED, _MOST_RECEIVED = 4 << 20, 4_096


@dataclass(frozen=True)
class ShuffledRun:
    """A run with a global shuffle. ``memory``: bytes for the documents that a task holds."""

    shards: list[Shard]
    output: str
    key: str
    layout: ShardLayout
    documents: DocumentEncoder
    memory: int

    def finished(self, spark: SparkSession) -> list[dict]:
        """The entries of the shards that an earlier attempt finished, checked by tasks: every file is read."""
        if not self.shards or not storage.list_names(storage.join(self.output, manifests.JOURNAL)):
            return []
        n = len(self.shards)
        names = spark.sparkContext.broadcast([shard.name for shard in self.shards])
        rows = spark.range(0, n, 1, n).mapInArrow(run_tasks(_Check(names, self.output, self.key)), RESULT_SCHEMA)
        return [json.loads(row.result) for row in collect(spark, rows)]

    def encode(self, spark: SparkSession, source: list[AnySplit] | FrameInput, task_bytes: int) -> list[dict]:
        """The entries of all shards, those that were finished before with "resumed". ``task_bytes``: of text that a task
        sends, at most."""
        entries = [{**entry, "resumed": True} for entry in self.finished(spark)]
        done = {entry["name"] for entry in entries}
        missing = [shard.name for shard in self.shards if shard.name not in done]
        return entries + (self._written(spark, source, task_bytes, missing) if missing else [])

    def _written(
        self, spark: SparkSession, source: list[AnySplit] | FrameInput, task_bytes: int, missing: list[str]
    ) -> list[dict]:
        number = {name: i for i, name in enumerate(missing)}
        partitions = np.array([number.get(shard.name, -1) for shard in self.shards], np.int64)
        broadcast = spark.sparkContext.broadcast
        sending = Sending(broadcast(partitions), self.documents, self.memory)
        if isinstance(source, FrameInput):
            total = source.text_bytes
            rows = source.frame.mapInArrow(FrameSendTask(source.name, sending), ROW_SCHEMA)
        else:
            total = sum(split.text_bytes for split in source)
            share = total // (4 * max(2, spark.sparkContext.defaultParallelism)) + 1
            tasks = pack_splits(source, max(_LEAST_TASK, min(task_bytes, share)))
            task = SendTask(broadcast(tasks), sending)
            rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run_tasks(task), ROW_SCHEMA)
        receive = ReceiveTask(
            broadcast(missing), self.output, self.key, self.layout, self.documents.dtype,
            row_schema(self.documents, self.layout), total // len(missing), self.documents.counters,
        )  # fmt: skip
        # A shard without documents is written too.
        rows = rows.union(spark.range(0, len(missing), 1, 1).mapInArrow(_open_partitions, ROW_SCHEMA))
        # By number, which Spark's adaptive execution leaves as it is: no partition is joined with another or cut.
        moved = rows.repartitionById(len(missing), "partition").sortWithinPartitions(*ORDER)
        return [json.loads(row.result) for row in collect(spark, moved.mapInArrow(receive, RESULT_SCHEMA))]


def _open_partitions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """An empty row for every partition, ahead of all others."""
    for batch in batches:
        yield from Scatter(-1, 1).finish(dict.fromkeys(batch["id"].to_pylist(), ""))


@dataclass(frozen=True)
class _Check:
    names: Broadcast  # of list[str]
    output: str
    key: str

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        entry = manifests.read_journal_entry(self.output, self.names.value[index], self.key)
        if entry is not None:
            yield result_batch([entry])


@dataclass(frozen=True)
class Sending:
    """How documents are encoded and sent on: the same for all tasks."""

    partitions: Broadcast  # of int64 [shards]: the partition that writes each, -1 for finished ones
    documents: DocumentEncoder
    memory: int

    def send(self, task: int | None, batches: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
        """``task``: its number, in the order of the corpus; None where that has no order."""
        partitions = self.partitions.value
        scatter = Scatter(task, self.memory)
        left_out = dict.fromkeys(STATISTICS, 0)
        for encoded in self.documents.encode(
            batches, left_out, lambda keys: partitions[shard_of(keys, len(partitions))]
        ):
            yield from scatter.add(_to_rows(encoded), encoded.places)
        # The first shard's entry has what all tasks left out.
        said = json.dumps({name: n for name, n in left_out.items() if n})
        yield from scatter.finish({0: said} if partitions[0] == 0 else {})


@dataclass(frozen=True)
class SendTask:
    """Encodes a part of the corpus and sends it on; called on executors."""

    tasks: Broadcast  # of list[list[AnySplit]]
    sending: Sending

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        splits = self.tasks.value[index]
        documents = self.sending.documents
        yield from self.sending.send(index, read_batches(splits, documents.selection))
        documents.counters.planned.add(sum(split.text_bytes for split in splits))


@dataclass(frozen=True)
class FrameSendTask:
    """Encodes a partition of a DataFrame and sends it on; ``name``: what the input is called."""

    name: str
    sending: Sending

    def __call__(self, frame: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            partition = TaskContext.get().partitionId()
            batches = frame_batches(frame, self.name, partition, self.sending.documents.selection)
            yield from self.sending.send(None, batches)


def _to_rows(encoded: Encoded) -> pa.RecordBatch:
    rows = to_arrow(encoded.rows)
    own = {"key": pa.array(encoded.keys), "flags": pa.array(encoded.flags), "bytes": pa.array(encoded.text_bytes)}
    if encoded.groups is not None:
        own["group"] = encoded.groups
    return pa.RecordBatch.from_arrays([*rows.columns, *own.values()], names=[*rows.schema.names, *own])


def row_schema(documents: DocumentEncoder, layout: ShardLayout) -> pa.Schema:
    """Of the documents on their way."""
    fields = [("tokens", pa.large_binary())]
    if documents.with_ids:
        fields.append(("id", pa.string()))
    if layout.spec.metadata is not None:
        fields.append(("metadata", pa.struct(layout.spec.metadata)))
    fields += [("key", pa.uint64()), ("flags", pa.uint8()), ("bytes", pa.int64())]
    if documents.selection.columns.group:
        fields.append(("group", pa.string()))
    return pa.schema(fields)


def _noted(
    arrived: Iterable[tuple[str | None, pa.RecordBatch]], statistics: dict[str, int]
) -> Iterator[pa.RecordBatch]:
    """The documents that arrived; adds what is noted to ``statistics``."""
    for note, rows in arrived:
        for what, n in json.loads(note or "{}").items():
            statistics[what] += n
        yield rows


def _larger(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of a document each, joined to some megabytes."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= _RECEIVED or len(pending) >= _MOST_RECEIVED:
            yield pa.concat_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.concat_batches(pending)


@dataclass(frozen=True)
class ReceiveTask:
    """Writes the shards of the partitions it is given; a ``mapInArrow`` function on executors. ``share``: bytes of text
    of a shard, for progress."""

    names: Broadcast  # of list[str]: by partition
    output: str
    key: str
    layout: ShardLayout
    dtype: np.dtype
    schema: pa.Schema
    share: int
    counters: Counters

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            for partition, arrived in groupby(gather(batches, self.schema), lambda chunk: chunk[0]):
                OUTPUT.still_ours(self.output, self.key)
                entry, counted = self._write(self.names.value[partition], ((note, rows) for _, note, rows in arrived))
                OUTPUT.still_ours(self.output, self.key)
                manifests.write_journal_entry(self.output, entry, counted)
                self.counters.planned.add(self.share)
                yield result_batch([{**entry, "resumed": False}])

    def _write(self, name: str, arrived: Iterable[tuple[str | None, pa.RecordBatch]]) -> tuple[dict, Statistics]:
        statistics = dict.fromkeys(STATISTICS, 0)
        # Equal keys stay as they arrive: in the order of the corpus, or of their contents where that has none.
        builder = ShardBuilder(self.output, name, self.layout)
        try:
            for rows in _larger(_noted(arrived, statistics)):
                flags = np.asarray(rows["flags"])
                add_statistics(statistics, from_arrow(rows, self.dtype), flags, np.asarray(rows["bytes"]))
                kept = flags & LEFT_OUT == 0
                if not kept.all():
                    rows = rows.filter(pa.array(kept))
                batch = from_arrow(rows, self.dtype)
                if "group" in self.schema.names:
                    builder.statistics.add_groups(rows["group"], np.asarray(rows["bytes"]), np.diff(batch.offsets))
                builder.add(batch, np.asarray(rows["key"]))
            written = builder.finish()
            if builder.tails:
                written["tails"] = write_tails(self.output, name, builder.tails)
        except BaseException:
            builder.discard()
            raise
        return {"key": self.key, **statistics, **written, "sources": []}, builder.statistics
