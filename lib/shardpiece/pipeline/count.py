"""The count stage: corpus in, word table out.

Executors split and count their part of the corpus in a bounded hash table, Spark sums equal words in a shuffle and
sorts them, and each sorted partition writes its own Parquet file.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import Broadcast, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import Columns, pack_splits, plan_input
from shardpiece.pipeline.kernels import prepare_kernels
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import (
    RESULT_SCHEMA,
    Counters,
    document_errors,
    errors_for_driver,
    plain_values,
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

# Rows of the shuffle: words, and the statistics of the tasks, which are summed the same way so that a retried task
# counts once.
_WORD, _STATISTIC = 0, 1
_ROW_SCHEMA = "kind byte, word binary, group string, count long"
_STATISTICS = ("documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "words",
               "special_tokens", "long_words", "long_word_bytes")  # fmt: skip
OUTPUT = OutputKind(
    what="a word table",
    manifest=words.MANIFEST,
    names=words.PART_NAMES,
    read=words.read_manifest,
    key=lambda manifest: manifest["key"],
    files=lambda manifest: manifest["files"],
)


def count(session: Callable[[], SparkSession], config: JobConfig) -> StageReport:
    """Count the words of ``config.input`` into ``config.words_path``; does nothing when that was done before.

    ``session`` is called, and Spark started, only when there is something to do.
    """
    output = storage.absolute(config.words_path)
    columns = Columns(config.text_column, group=config.group_column)
    engine = TextEngine(config.pretokenizer, config.normalizer)
    huggingface_text.check(engine)  # or the training fails
    plan = plan_input(list_files(config.input), columns)
    special_tokens = sorted(config.train.special_tokens)
    key = plan_key(
        stage="count",
        engine=engine.fingerprint,
        special_tokens=special_tokens,
        columns=[config.text_column, config.group_column],
        invalid_utf8=config.invalid_utf8,
        max_word_bytes=config.count.max_word_bytes,
        input=plan.ledger(),
    )
    finished = OUTPUT.finished(output, key, config.overwrite)
    if finished is not None:
        log(f"count: {output} is done and unchanged, skipped")
        return _report(finished, 0.0, skipped=True)
    OUTPUT.check(output, config.input, plan.files)
    prepare_kernels(engine)
    spark = session()
    OUTPUT.start(output, key)

    # Small enough to keep every core busy to the end; the table does not depend on it.
    share = plan.text_bytes // (4 * max(2, spark.sparkContext.defaultParallelism)) + 1
    tasks = pack_splits(plan.splits, min(int(config.count.task_size), share))
    log(
        f"count: {len(plan.files):,} files, {plan.rows:,} documents, {plan.text_bytes / 1e6:,.1f} MB of text, "
        f"{len(tasks):,} tasks"
    )
    counters = Counters.create(spark)
    task = CountTask(
        spark.sparkContext.broadcast(tasks), columns, engine.spec, special_tokens, config.invalid_utf8,
        int(config.count.memory_per_task), config.count.max_word_bytes, counters,
    )  # fmt: skip
    rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run_tasks(task), _ROW_SCHEMA)
    summed = rows.groupBy("kind", "word", "group").agg(F.sum("count").alias("count"))
    written = summed.orderBy("kind", "word", "group").mapInArrow(_PartWriter(output), RESULT_SCHEMA)
    with (
        StageProgress("count", counters.reader(plan.text_bytes, "documents", "bytes")) as progress,
        job_errors("count"),
    ):
        results = [json.loads(row.result) for row in collect(spark, written)]

    statistics = dict.fromkeys(_STATISTICS, 0) | {
        name: sum(r["statistics"].get(name, 0) for r in results) for name in _STATISTICS
    }
    parts = sorted((r["part"] for r in results if "part" in r), key=lambda part: part["name"])
    sums = np.zeros(2, np.uint64)
    for result in results:
        sums += np.array(result["sums"], np.uint64)
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
        "files": parts,
    }
    OUTPUT.finish(output, manifest)
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

    tasks: Broadcast  # of list[list[Split]]: unpickled once per worker, not once per task
    columns: Columns
    engine: dict
    special_tokens: list[str]
    invalid_utf8: str
    memory: int
    max_word_bytes: int
    counters: Counters

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        engine = TextEngine.from_spec(self.engine)
        counter = WordCounter(self.memory, self.max_word_bytes)
        cutter = SpecialTokenCutter(self.special_tokens)
        statistics = dict.fromkeys(_STATISTICS, 0)
        splits = self.tasks.value[index]
        for split, row, batch, documents in read_documents(splits, self.columns, self.invalid_utf8):
            cut = cutter.cut(documents)
            with document_errors(split, row, cut.owners):
                found = engine.split(cut.pieces, cut.at_start)
            groups = None
            if self.columns.group:
                names = plain_values(split, batch, self.columns.group).to_pylist()
                groups = [names[d] or "" for d in cut.owners.tolist()]
            yield from map(_word_rows, counter.add(found, groups))
            statistics["documents"] += len(documents)
            statistics["null_documents"] += documents.nulls
            statistics["empty_documents"] += documents.empty
            statistics["replaced_documents"] += documents.replaced
            statistics["bytes"] += documents.size
            statistics["words"] += len(found.ends)
            statistics["special_tokens"] += cut.removed
            self.counters.documents.add(len(documents))
            self.counters.bytes.add(documents.size)
        yield from map(_word_rows, counter.drain())
        statistics["long_words"] = counter.long_words
        statistics["long_word_bytes"] = counter.long_word_bytes
        self.counters.planned.add(sum(split.text_bytes for split in splits))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([_STATISTIC] * len(statistics), pa.int8()),
                pa.array([name.encode() for name in statistics], pa.binary()),
                pa.array([""] * len(statistics), pa.string()),
                pa.array(list(statistics.values()), pa.int64()),
            ],
            names=["kind", "word", "group", "count"],
        )


def _word_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    kind = pa.array(np.full(batch.num_rows, _WORD, np.int8))
    return pa.RecordBatch.from_arrays([kind, *batch.columns], names=["kind", "word", "group", "count"])


@dataclass(frozen=True)
class _PartWriter:
    """Writes one sorted partition as a Parquet file, on executors; gives the file and the statistics it met."""

    output: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            yield result_batch([self._write(batches)])

    def _write(self, batches: Iterator[pa.RecordBatch]) -> dict:
        name = f"part-{TaskContext.get().partitionId():05}.parquet"
        statistics: dict[str, int] = {}
        sums = np.zeros(2, np.uint64)
        rows = 0
        checksum = size = None

        def write(file) -> None:
            nonlocal rows, sums, checksum, size
            target = storage.ChecksumWriter(file)
            with pq.ParquetWriter(pa.PythonFile(target, mode="w"), words.SCHEMA, compression="zstd") as writer:
                for batch in pending:
                    writer.write_batch(batch)
                    sums += words.content_sums(batch)
                    rows += batch.num_rows
            checksum, size = target.checksum, target.size

        pending = self._words(batches, statistics)
        first = next(pending, None)
        if first is None:
            return {"statistics": statistics, "sums": sums.tolist()}
        pending = _chain(first, pending)
        storage.write_file(storage.join(self.output, name), write)
        part = {"name": name, "rows": rows, "bytes": size, "checksum": checksum}
        return {"statistics": statistics, "sums": sums.tolist(), "part": part}

    @staticmethod
    def _words(batches: Iterator[pa.RecordBatch], statistics: dict[str, int]) -> Iterator[pa.RecordBatch]:
        """The word rows; statistics, which sort after them, are put aside."""
        for batch in batches:
            kinds = batch["kind"].to_numpy()
            n = int((kinds == _WORD).sum())
            for i in range(n, batch.num_rows):
                statistics[batch["word"][i].as_py().decode()] = batch["count"][i].as_py()
            if n:
                yield batch.slice(0, n).select(["word", "group", "count"]).cast(words.SCHEMA)


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


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
