"""The first pass of a mixture: how much there is of every group, and with that what is taken of it.

Where a group has a budget of tokens the corpus is encoded, and nothing written; else it is only read. What was found is kept
beside the journal, so that a restarted run does not do it again.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import Broadcast, TaskContext
from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.corpus import mixture
from shardpiece.corpus.base import AnySplit, Batch
from shardpiece.corpus.keys import document_hash
from shardpiece.corpus.mixture import Share, Take, Tally
from shardpiece.corpus.order import group_codes
from shardpiece.corpus.splits import pack_splits, read_batches
from shardpiece.errors import FormatError
from shardpiece.pipeline.encode.documents import LEFT_OUT, DocumentEncoder
from shardpiece.pipeline.frames import FrameInput, frame_batches
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import RESULT_SCHEMA, errors_for_driver, result_batch, run_tasks
from shardpiece.shards import manifest as manifests

_ROW_SCHEMA = "group string, data binary"
_LEAST_TASK, _MOST_TASKS = 16 << 20, 4096
_PARTITIONS = 64
_FILE = "mixture.json"


@dataclass(frozen=True)
class Measured:
    """By group, in their order: what there is of it (documents, bytes and, where it has a budget, tokens; without those for
    validation), and what is taken."""

    groups: dict[str, dict[str, int]]
    takes: dict[str, Take]

    @property
    def text_bytes(self) -> int:
        """About the bytes of text of all that is taken."""
        return sum(int(self.groups[name]["bytes"] * take.epochs) for name, take in self.takes.items())

    @property
    def repeats(self) -> list[str]:
        """The groups of which documents are taken more than once."""
        return [name for name, take in self.takes.items() if take.repeats]

    def to_json(self) -> dict:
        return {
            name: {**self.groups[name], "whole": take.whole, "bound": take.bound} for name, take in self.takes.items()
        }

    @classmethod
    def from_json(cls, said: dict) -> "Measured":
        takes = {name: Take(group.pop("whole"), group.pop("bound")) for name, group in said.items()}
        return cls(said, takes)


def measure(
    spark: SparkSession,
    source: list[AnySplit] | FrameInput,
    documents: DocumentEncoder,
    shares: Mapping[str, Share],
    output: str,
    key: str,
    increment: bool,
) -> Measured:
    """``increment``: whether this is a part of the corpus, which need not have every group. Raises ConfigError for a
    mixture that does not fit the corpus: see ``mixture.resolve``."""
    path = storage.join(output, manifests.JOURNAL, _FILE)
    found = _kept(path, key)
    if found is None:
        found = _measure(spark, source, documents, shares, increment)
        storage.write_bytes(path, storage.pretty_json({"key": key, "groups": found.to_json()}))
    for name, take in found.takes.items():
        group = found.groups[name]
        tokens = f", {group['tokens']:,} tokens" if group["tokens"] else ""
        log(
            f"encode: mixture: {name or '(no group)'}: {take.epochs:.4g} epochs of {group['documents']:,} documents{tokens}"
        )
    return found


def _kept(path: str, key: str) -> Measured | None:
    try:
        said = storage.read_json(path)
        return Measured.from_json(said["groups"]) if said["key"] == key else None
    except (FormatError, KeyError, TypeError, AttributeError):
        return None


def _measure(
    spark: SparkSession,
    source: list[AnySplit] | FrameInput,
    documents: DocumentEncoder,
    shares: Mapping[str, Share],
    increment: bool,
) -> Measured:
    measuring = Measuring(documents, dict(shares))
    if isinstance(source, FrameInput):
        total = source.text_bytes
        rows = source.frame.mapInArrow(FrameMeasureTask(source.name, measuring), _ROW_SCHEMA)
    else:
        total = sum(split.text_bytes for split in source)
        share = total // (4 * max(2, spark.sparkContext.defaultParallelism)) + 1
        tasks = pack_splits(source, max(_LEAST_TASK, min(share, 256 << 20), total // _MOST_TASKS))
        task = MeasureTask(spark.sparkContext.broadcast(tasks), measuring)
        rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run_tasks(task), _ROW_SCHEMA)
    partitions = min(_PARTITIONS, int(spark.conf.get("spark.sql.shuffle.partitions")))
    moved = rows.repartition(partitions, "group").mapInArrow(ResolveTask(dict(shares)), RESULT_SCHEMA)
    reader = documents.counters.reader(total, "documents", "bytes", "tokens")
    with StageProgress("measuring the mixture", reader), job_errors("encode"):
        results = [json.loads(row.result) for row in collect(spark, moved)]
    said = {result.pop("group"): result for result in sorted(results, key=lambda result: result["group"])}
    mixture.check_groups(shares, list(said), every=not increment)
    return Measured.from_json(said)


@dataclass(frozen=True)
class Measuring:
    """How documents are added up: the same for all tasks."""

    documents: DocumentEncoder
    shares: dict[str, Share]

    def measure(self, batches: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
        tally = Tally(self.shares)
        placement = self.documents.placement
        for groups, ids, sizes, tokens in self._documents(batches):
            names, codes = group_codes(groups)
            if placement.validation is not None:
                kept = ~placement.validation.chosen(ids)
                codes, ids, sizes, tokens = codes[kept], ids.filter(pa.array(kept)), sizes[kept], tokens[kept]
            tally.add(names, codes, document_hash(placement.seed, ids, mixture.PURPOSE), sizes, tokens)
        for name, packed in tally.packed():
            yield pa.RecordBatch.from_arrays(
                [pa.array([name]), pa.array([packed], pa.binary())], names=["group", "data"]
            )

    def _documents(self, batches: Iterator[Batch]) -> Iterator[tuple[pa.Array, pa.Array, np.ndarray, np.ndarray]]:
        """(groups, ids, bytes, tokens) of the documents that would be written; tokens are 0 where there is no budget."""
        if any(share.tokens is not None for share in self.shares.values()):
            for encoded in self.documents.encode(batches):
                kept = encoded.flags & LEFT_OUT == 0
                mask = pa.array(kept)
                tokens = np.diff(encoded.rows.offsets)
                yield encoded.groups.filter(mask), encoded.ids.filter(mask), encoded.text_bytes[kept], tokens[kept]
        else:
            for read in self.documents.read(batches):
                sizes = read.text_bytes()
                yield read.groups, read.ids, sizes, np.zeros(len(sizes), np.int64)


@dataclass(frozen=True)
class MeasureTask:
    """Adds up a part of the corpus; called on executors."""

    tasks: Broadcast  # of list[list[AnySplit]]
    measuring: Measuring

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        splits = self.tasks.value[index]
        documents = self.measuring.documents
        yield from self.measuring.measure(read_batches(splits, documents.selection))
        documents.counters.planned.add(sum(split.text_bytes for split in splits))


@dataclass(frozen=True)
class FrameMeasureTask:
    """Adds up a partition of a DataFrame, which ``mapInArrow`` hands over; ``name``: what the input is called."""

    name: str
    measuring: Measuring

    def __call__(self, frame: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            selection = self.measuring.documents.selection
            yield from self.measuring.measure(
                frame_batches(frame, self.name, TaskContext.get().partitionId(), selection)
            )


@dataclass(frozen=True)
class ResolveTask:
    """Adds up what tasks found of some groups, and says what is taken of them; a ``mapInArrow`` function on executors."""

    shares: dict[str, Share]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            tally = Tally(self.shares)
            for batch in batches:
                for name, data in zip(batch["group"].to_pylist(), batch["data"], strict=True):
                    tally.add_packed(name, data.as_buffer().to_pybytes())
            results = []
            for name, group in tally.groups().items():
                figures = {what: int(getattr(group, what).sum()) for what in ("documents", "bytes", "tokens")}
                share = mixture.share_of(self.shares, name)
                take = Take(0) if share is None else mixture.take_of(name, share, group)
                results.append({"group": name, **figures, "whole": take.whole, "bound": take.bound})
            if results:
                yield result_batch(results)
