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
from pyspark import Broadcast
from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.corpus.base import AnySplit
from shardpiece.corpus.order import shard_of
from shardpiece.corpus.splits import pack_splits
from shardpiece.pipeline.encode_task import OUTPUT
from shardpiece.pipeline.encoded import LEFT_OUT, STATISTICS, DocumentEncoder, Encoded, add_statistics
from shardpiece.pipeline.exchange import ORDER, ROW_SCHEMA, Scatter, gather
from shardpiece.pipeline.session import collect
from shardpiece.pipeline.tasks import RESULT_SCHEMA, Counters, errors_for_driver, result_batch, run_tasks
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import ShardBuilder, ShardLayout
from shardpiece.shards.plan import Shard
from shardpiece.shards.rows import from_arrow, to_arrow
from shardpiece.shards.statistics import Statistics
from shardpiece.shards.tails import write_tails

_LEAST_TASK = 16 << 20


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

    def encode(self, spark: SparkSession, splits: list[AnySplit], task_bytes: int) -> list[dict]:
        """The entries of all shards, those that were finished before with "resumed". ``task_bytes``: of text that a task
        sends, at most."""
        entries = [{**entry, "resumed": True} for entry in self.finished(spark)]
        done = {entry["name"] for entry in entries}
        missing = [shard.name for shard in self.shards if shard.name not in done]
        if missing and splits:
            entries += self._written(spark, splits, task_bytes, missing)
        return entries

    def _written(self, spark: SparkSession, splits: list[AnySplit], task_bytes: int, missing: list[str]) -> list[dict]:
        number = {name: i for i, name in enumerate(missing)}
        partitions = np.array([number.get(shard.name, -1) for shard in self.shards], np.int64)
        total = sum(split.text_bytes for split in splits)
        share = total // (4 * max(2, spark.sparkContext.defaultParallelism)) + 1
        tasks = pack_splits(splits, max(_LEAST_TASK, min(task_bytes, share)))
        broadcast = spark.sparkContext.broadcast
        send = SendTask(broadcast(tasks), broadcast(partitions), len(missing), self.documents, self.memory)
        receive = ReceiveTask(
            broadcast(missing), self.output, self.key, self.layout, self.documents.dtype,
            row_schema(self.documents, self.layout), total // len(missing), self.documents.counters,
        )  # fmt: skip
        rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run_tasks(send), ROW_SCHEMA)
        # By number, which Spark's adaptive execution leaves as it is: no partition is joined with another or cut.
        moved = rows.repartitionById(len(missing), "partition").sortWithinPartitions(*ORDER)
        return [json.loads(row.result) for row in collect(spark, moved.mapInArrow(receive, RESULT_SCHEMA))]


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
class SendTask:
    """Encodes a part of the corpus and sends it on; called on executors."""

    tasks: Broadcast  # of list[list[AnySplit]]
    partitions: Broadcast  # of int64 [shards]: the partition that writes each, -1 for finished ones
    missing: int
    documents: DocumentEncoder
    memory: int

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        splits = self.tasks.value[index]
        partitions = self.partitions.value
        scatter = Scatter(index, self.memory)
        left_out = dict.fromkeys(STATISTICS, 0)
        for encoded in self.documents.encode(
            splits, left_out, lambda keys: partitions[shard_of(keys, len(partitions))]
        ):
            yield from scatter.add(_to_rows(encoded), encoded.places)
        self.documents.counters.planned.add(sum(split.text_bytes for split in splits))
        # A shard without documents is written too. The first shard's entry has what all tasks left out.
        notes = dict.fromkeys(range(self.missing), "") if index == 0 else {}
        if partitions[0] == 0:
            notes[0] = json.dumps({name: n for name, n in left_out.items() if n})
        yield from scatter.finish(notes)


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
        # Equal keys stay as they arrive: in the order of the corpus.
        builder = ShardBuilder(self.output, name, self.layout)
        try:
            for note, rows in arrived:
                for what, n in json.loads(note or "{}").items():
                    statistics[what] += n
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
