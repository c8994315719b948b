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
from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.corpus.base import Columns, InputPlan
from shardpiece.corpus.splits import pack_splits
from shardpiece.pipeline.count_task import (
    ROW_NAMES,
    ROW_SCHEMA,
    STATISTICS,
    WORDS,
    Counting,
    CountTask,
    FrameCountTask,
)
from shardpiece.pipeline.frames import FrameInput, open_frame
from shardpiece.pipeline.inputs import plan_job
from shardpiece.pipeline.kernels import prepare_kernels
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.partitions import beginnings, choose_borders, choose_partitions
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import (
    RESULT_SCHEMA,
    Counters,
    errors_for_driver,
    plan_key,
    result_batch,
    run_tasks,
)
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.formats import huggingface_text
from shardpiece.words import table as words
from shardpiece.words.packed import Merger

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
    """What a count run is about to do; ``key``: of everything that decides its result; ``frame``: None where the input is
    files."""

    output: str
    engine: TextEngine
    special_tokens: list[str]
    plan: InputPlan
    key: str
    frame: FrameInput | None = None


def plan_count(config: JobConfig, session: Callable[[], SparkSession] | None = None) -> Planned:
    """Reads the input's metadata; writes nothing. ``session`` is called for input that Spark reads."""
    columns = Columns(config.text_column, group=config.group_column)
    engine = TextEngine(*config.engine_to_count)
    huggingface_text.check(engine, config.train.style == "byte-level")  # or the training fails
    frame = open_frame(session, config, columns) if session else None
    plan = frame.plan if frame else plan_job(config, columns, "count")
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
    return Planned(storage.absolute(config.words_path), engine, special_tokens, plan, key, frame)


def count(session: Callable[[], SparkSession], config: JobConfig) -> StageReport:
    """Count the words of ``config.input`` into ``config.words_path``; does nothing when that was done before.

    ``session`` is called, and Spark started, only when there is something to do.
    """
    with ExitStack() as held:
        return _count(session, config, plan_count(config, session), held)


def _count(session: Callable[[], SparkSession], config: JobConfig, planned: Planned, held: ExitStack) -> StageReport:
    output, engine, key = planned.output, planned.engine, planned.key
    plan, special_tokens, frame = planned.plan, planned.special_tokens, planned.frame
    finished = OUTPUT.finished(output, key, config.overwrite)
    if finished is not None:
        log(f"count: {output} is done and unchanged, skipped")
        return _report(finished, 0.0, skipped=True)
    OUTPUT.check(output, config.input, plan.files)
    lock = held.enter_context(OUTPUT.lock(output, lambda: OUTPUT.finished(output, key, config.overwrite)))
    prepare_kernels(engine)
    spark = session()
    OUTPUT.start(lock, key)

    text_bytes = frame.text_bytes if frame else plan.text_bytes
    cores = spark.sparkContext.defaultParallelism
    partitions = choose_partitions(text_bytes, cores, int(spark.conf.get("spark.sql.shuffle.partitions")))
    sample = frame.beginnings(partitions) if frame else beginnings(plan)
    borders = choose_borders(sample, engine, partitions)
    counters = Counters.create(spark)
    counting = Counting(
        plan.selection, engine.spec, special_tokens, config.invalid_utf8, int(config.count.memory_per_task),
        config.count.max_word_bytes, borders, counters,
    )  # fmt: skip
    if frame:
        log(f"count: {frame.name}, as Spark reads it")
        rows = frame.frame.mapInArrow(FrameCountTask(frame.name, counting), ROW_SCHEMA)
    else:
        # Small enough to keep every core busy to the end; the table does not depend on it.
        tasks = pack_splits(plan.splits, min(int(config.count.task_size), text_bytes // (4 * max(2, cores)) + 1))
        log(
            f"count: {len(plan.files):,} files, {'' if plan.rows is None else f'{plan.rows:,} documents, '}"
            f"{text_bytes / 1e6:,.1f} MB of text, {len(tasks):,} tasks"
        )
        task = CountTask(spark.sparkContext.broadcast(tasks), counting)
        rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run_tasks(task), ROW_SCHEMA)
    # By number, which Spark's adaptive execution leaves as it is: no partition is joined with another or cut.
    moved = rows.repartitionById(len(borders) + 1, "partition")
    written = moved.mapInArrow(_PartWriter(output), RESULT_SCHEMA)
    with (
        StageProgress("count", counters.reader(text_bytes, "documents", "bytes")) as progress,
        job_errors("count"),
    ):
        results = [json.loads(row.result) for row in collect(spark, written)]

    found = [result["statistics"] for result in results if "statistics" in result]
    statistics = {name: sum(of_task[name] for of_task in found) for name in STATISTICS}
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
    if statistics["filtered_documents"]:
        log(f"count: {statistics['filtered_documents']:,} documents of those read are left out by where and sample")
    if statistics["bad_rows"]:
        log(f"count: {statistics['bad_rows']:,} lines that are no JSON objects of the expected types are left out")
    if statistics["replaced_documents"]:
        log(f"count: {statistics['replaced_documents']:,} documents had invalid UTF-8, replaced with U+FFFD")
    return _report(manifest, progress.seconds)


@dataclass(frozen=True)
class _PartWriter:
    """Merges the words of a partition and writes them as a Parquet file, on executors; gives the file and the statistics it
    met. Holds the packed words of one partition (see ``Merger``)."""

    output: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            statistics = dict.fromkeys(STATISTICS, 0)
            mergers: dict[int, Merger] = {}
            for batch in batches:
                for partition, kind, data in zip(*(batch[name] for name in ROW_NAMES), strict=True):
                    if kind.as_py() == WORDS:
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
