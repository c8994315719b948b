"""The count stage: corpus in, word table out.

Executors split and count their part of the corpus in a bounded hash table and hand it on sorted, packed, and cut into ranges
of words. Spark moves these pieces, some megabytes each, to the task of their range, which merges them, adds up equal words
and writes a Parquet file. A row of Spark's per word instead took three times as long in all.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import Broadcast
from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.corpus.base import Columns, InputPlan, Selection
from shardpiece.corpus.splits import pack_splits
from shardpiece.pipeline.inputs import plan_job
from shardpiece.pipeline.kernels import prepare_kernels
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.partitions import choose_borders, choose_partitions
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import (
    RESULT_SCHEMA,
    Counters,
    document_errors,
    errors_for_driver,
    plan_key,
    read_documents,
    result_batch,
    run_tasks,
)
from shardpiece.text.engine import TextEngine
from shardpiece.text.special import SpecialTokenCutter
from shardpiece.tokenizer.formats import huggingface_text
from shardpiece.words import table as words
from shardpiece.words.counter import WordCounter
from shardpiece.words.packed import Merger

# Rows of the shuffle: packed words, and the statistics of the tasks (JSON), which go with them so that a retried task counts
# once.
_WORDS, _STATISTICS_OF_TASK = 0, 1
_ROW_NAMES = ("partition", "kind", "data")
_ROW_SCHEMA = "partition int, kind byte, data binary"
_STATISTICS = ("documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "words",
               "special_tokens", "long_words", "long_word_bytes")  # fmt: skip
# Words are all different: a dictionary of them is only in the way.
_PARQUET = {"compression": "zstd", "use_dictionary": ["group", "count"]}
OUTPUT = OutputKind(
    what="a word table",
    manifest=words.MANIFEST,
    names=words.PART_NAMES,
    read=words.read_manifest,
    key=lambda manifest: manifest["key"],
    files=lambda manifest: manifest["files"],
)


@dataclass(frozen=True)
class Planned:
    """What a count run is about to do; ``key``: of everything that decides its result."""

    output: str
    engine: TextEngine
    special_tokens: list[str]
    plan: InputPlan
    key: str


def plan_count(config: JobConfig) -> Planned:
    """Reads the input's metadata; writes nothing."""
    columns = Columns(config.text_column, group=config.group_column)
    engine = TextEngine(*config.engine_to_count)
    huggingface_text.check(engine, config.train.style == "byte-level")  # or the training fails
    plan = plan_job(config, columns, "count")
    special_tokens = sorted(config.train.special_tokens)
    key = plan_key(
        stage="count",
        engine=engine.fingerprint,
        special_tokens=special_tokens,
        columns=[config.text_column, config.group_column],
        invalid_utf8=config.invalid_utf8,
        max_word_bytes=config.count.max_word_bytes,
        input=plan.ledger(),
        **plan.options(),
    )
    return Planned(storage.absolute(config.words_path), engine, special_tokens, plan, key)


def count(session: Callable[[], SparkSession], config: JobConfig) -> StageReport:
    """Count the words of ``config.input`` into ``config.words_path``; does nothing when that was done before.

    ``session`` is called, and Spark started, only when there is something to do.
    """
    with ExitStack() as held:
        return _count(session, config, plan_count(config), held)


def _count(session: Callable[[], SparkSession], config: JobConfig, planned: Planned, held: ExitStack) -> StageReport:
    output, engine, key = planned.output, planned.engine, planned.key
    plan, special_tokens = planned.plan, planned.special_tokens
    finished = OUTPUT.finished(output, key, config.overwrite)
    if finished is not None:
        log(f"count: {output} is done and unchanged, skipped")
        return _report(finished, 0.0, skipped=True)
    OUTPUT.check(output, config.input, plan.files)
    lock = held.enter_context(OUTPUT.lock(output, lambda: OUTPUT.finished(output, key, config.overwrite)))
    prepare_kernels(engine)
    spark = session()
    OUTPUT.start(lock, key)

    # Small enough to keep every core busy to the end; the table does not depend on it.
    share = plan.text_bytes // (4 * max(2, spark.sparkContext.defaultParallelism)) + 1
    tasks = pack_splits(plan.splits, min(int(config.count.task_size), share))
    log(
        f"count: {len(plan.files):,} files, {'' if plan.rows is None else f'{plan.rows:,} documents, '}"
        f"{plan.text_bytes / 1e6:,.1f} MB of text, {len(tasks):,} tasks"
    )
    most = int(spark.conf.get("spark.sql.shuffle.partitions"))
    partitions = choose_partitions(plan.text_bytes, spark.sparkContext.defaultParallelism, most)
    borders = choose_borders(plan, engine, partitions)
    counters = Counters.create(spark)
    task = CountTask(
        spark.sparkContext.broadcast(tasks), plan.selection, engine.spec, special_tokens, config.invalid_utf8,
        int(config.count.memory_per_task), config.count.max_word_bytes, borders, counters,
    )  # fmt: skip
    rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run_tasks(task), _ROW_SCHEMA)
    # By number, which Spark's adaptive execution leaves as it is: no partition is joined with another or cut.
    moved = rows.repartitionById(len(borders) + 1, "partition")
    written = moved.mapInArrow(_PartWriter(output), RESULT_SCHEMA)
    with (
        StageProgress("count", counters.reader(plan.text_bytes, "documents", "bytes")) as progress,
        job_errors("count"),
    ):
        results = [json.loads(row.result) for row in collect(spark, written)]

    found = [result["statistics"] for result in results if "statistics" in result]
    statistics = {name: sum(of_task[name] for of_task in found) for name in _STATISTICS}
    parts = sorted((r["part"] for r in results if "part" in r), key=lambda part: part["name"])
    sums = np.zeros(2, np.uint64)
    for result in results:
        sums += np.array(result.get("sums", (0, 0)), np.uint64)
    manifest = {
        "format": words.FORMAT,
        "version": words.VERSION,
        "key": key,
        "fingerprint": words.fingerprint(sums, engine.fingerprint),
        "engine": engine.spec,
        "engine_fingerprint": engine.fingerprint,
        "special_tokens": special_tokens,
        "max_word_bytes": config.count.max_word_bytes,
        "distinct_words": sum(part["rows"] for part in parts),
        "statistics": statistics,
        "input": plan.ledger(),
        **plan.options(),
        "files": parts,
    }
    OUTPUT.finish(lock, manifest)
    if statistics["long_words"]:
        log(
            f"count: {statistics['long_words']:,} words of more than {config.count.max_word_bytes:,} bytes "
            f"({statistics['long_word_bytes'] / 1e6:,.1f} MB) are left out of the table; they always encode"
        )
    if statistics["special_tokens"]:
        log(f"count: {statistics['special_tokens']:,} special tokens in the text are boundaries and not counted")
    if statistics["replaced_documents"]:
        log(f"count: {statistics['replaced_documents']:,} documents had invalid UTF-8, replaced with U+FFFD")
    return _report(manifest, progress.seconds)


@dataclass(frozen=True)
class CountTask:
    """Counts the splits of one task; called on executors."""

    tasks: Broadcast  # of list[list[AnySplit]]: unpickled once per worker, not once per task
    selection: Selection
    engine: dict
    special_tokens: list[str]
    invalid_utf8: str
    memory: int
    max_word_bytes: int
    borders: list[bytes]
    counters: Counters

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        engine = TextEngine.from_spec(self.engine)
        counter = WordCounter(self.memory, self.max_word_bytes)

        def drain() -> Iterator[pa.RecordBatch]:
            for partition, packed in counter.drain_packed(self.borders):
                yield _row(partition, _WORDS, packed)

        cutter = SpecialTokenCutter(self.special_tokens)
        statistics = dict.fromkeys(_STATISTICS, 0)
        splits = self.tasks.value[index]
        for batch, documents in read_documents(splits, self.selection, self.invalid_utf8):
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
            self.counters.documents.add(len(documents))
            self.counters.bytes.add(documents.size)
        yield from drain()
        statistics["long_words"] = counter.long_words
        statistics["long_word_bytes"] = counter.long_word_bytes
        self.counters.planned.add(sum(split.text_bytes for split in splits))
        yield _row(0, _STATISTICS_OF_TASK, np.frombuffer(json.dumps(statistics).encode(), np.uint8))


def _row(partition: int, kind: int, data: np.ndarray) -> pa.RecordBatch:
    """A batch of one row: some megabytes are as much as Spark should hold at a time."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays(
        [pa.array([partition], pa.int32()), pa.array([kind], pa.int8()), column], names=_ROW_NAMES
    )


@dataclass(frozen=True)
class _PartWriter:
    """Merges the words of a partition and writes them as a Parquet file, on executors; gives the file and the statistics it
    met. Holds the packed words of one partition (see ``Merger``)."""

    output: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            statistics = dict.fromkeys(_STATISTICS, 0)
            mergers: dict[int, Merger] = {}
            for batch in batches:
                for partition, kind, data in zip(*(batch[name] for name in _ROW_NAMES), strict=True):
                    if kind.as_py() == _WORDS:
                        mergers.setdefault(partition.as_py(), Merger()).add(data.as_buffer())
                    else:
                        for name, value in json.loads(data.as_py()).items():
                            statistics[name] += value
            results = [self._write(partition, mergers.pop(partition)) for partition in sorted(mergers)]
            yield result_batch([{"statistics": statistics}, *results])

    def _write(self, partition: int, merger: Merger) -> dict:
        name = f"part-{partition:05}.parquet"
        sums = np.zeros(2, np.uint64)
        rows = 0
        checksum = size = None

        def write(file) -> None:
            nonlocal rows, sums, checksum, size
            target = storage.ChecksumWriter(file)
            with pq.ParquetWriter(pa.PythonFile(target, mode="w"), words.SCHEMA, **_PARQUET) as writer:
                for batch in merger.batches():
                    writer.write_batch(batch)
                    sums += words.content_sums(batch)
                    rows += batch.num_rows
            checksum, size = target.checksum, target.size

        storage.write_file(storage.join(self.output, name), write)
        part = {"name": name, "rows": rows, "bytes": size, "checksum": checksum}
        return {"sums": sums.tolist(), "part": part}


def _report(manifest: dict, seconds: float, skipped: bool = False) -> StageReport:
    statistics = manifest["statistics"]
    return StageReport(
        "count",
        seconds,
        skipped,
        {
            "documents": statistics["documents"],
            "bytes": statistics["bytes"],
            "words": statistics["words"],
            "distinct words": manifest["distinct_words"],
        },
    )
