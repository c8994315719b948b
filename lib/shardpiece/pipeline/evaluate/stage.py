"""The evaluate stage: corpus, or word table, and tokenizers in, metrics and report out.

Every task reads its part of the corpus once and measures it with all tokenizers. What it adds up goes, by tokenizer, to a
task that merges it, and from there to the driver, which makes figures of sums.
"""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.corpus.base import Columns, InputPlan
from shardpiece.corpus.sources import dataframe_of
from shardpiece.corpus.splits import pack_splits
from shardpiece.errors import ConfigError, FormatError
from shardpiece.evaluation import build, schema
from shardpiece.evaluation.measure import TableMeasurer
from shardpiece.evaluation.parallel import STRIP_LAST_PART
from shardpiece.evaluation.report import render
from shardpiece.evaluation.tally import TextTally, TokenTally
from shardpiece.evaluation.words import word_engine
from shardpiece.pipeline.evaluate.candidates import load_candidates, wanted_of, with_table
from shardpiece.pipeline.evaluate.task import ROW_SCHEMA, EvaluateTask, Merge
from shardpiece.pipeline.inputs import plan_job
from shardpiece.pipeline.kernels import prepare_encoding, prepare_kernels
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import Counters, plan_key, run_tasks
from shardpiece.tokenizer import packed
from shardpiece.words import table as words

METRICS = "metrics.json"
TABLE = "metrics.parquet"
PAGE = "report.html"
_LEAST_TASK, _MOST_TASK = 4 << 20, 64 << 20
_KEYS = {"key": str, "tokenizers": list, "corpus": dict, "files": list}


def read_metrics(directory: str) -> dict:
    """The content of metrics.json. Raises FormatError when there is no finished evaluation."""
    path = storage.join(directory, METRICS)
    if not storage.exists(path):
        raise FormatError(f"{directory}: no evaluation here ({METRICS} is missing). Make one with: shardpiece evaluate")
    return storage.read_manifest(path, schema.FORMAT, schema.VERSION, _KEYS)


OUTPUT = OutputKind(
    what="an evaluation",
    manifest=METRICS,
    names=r"metrics\.parquet|report\.html",
    read=read_metrics,
    key=lambda metrics: metrics["key"],
    files=lambda metrics: metrics["files"],
)


def evaluate(session: Callable[[], SparkSession], config: JobConfig) -> StageReport:
    """Evaluate ``config.evaluate.tokenizers`` on ``config.input``, or without input on a word table; does nothing when that
    was done before. ``session`` is called, and Spark started, for text only."""
    with ExitStack() as held:
        return _evaluate(session, config, held)


def _evaluate(session: Callable[[], SparkSession], config: JobConfig, held: ExitStack) -> StageReport:
    settings = config.evaluate
    output = storage.absolute(config.evaluation_path)
    candidates = load_candidates(config)
    manifest = None if settings.words is None else words.read_manifest(storage.absolute(settings.words))
    if not config.input and manifest is None:
        raise ConfigError("nothing to evaluate on: pass --input with a corpus, or --words with a word table")
    wanted = wanted_of(config)
    plan = None
    if dataframe_of(config.input) is not None:
        raise ConfigError(
            "evaluate reads files: write the table to Parquet, or evaluate on its word table with --words"
        )
    if config.input:
        columns = Columns(config.text_column, config.id_column, config.group_column, _parallel_columns(config))
        plan = plan_job(config, columns, "evaluate")
    key = plan_key(
        stage="evaluate",
        version=schema.VERSION,
        tokenizers=[[one.name, one.source, one.tokenizer.fingerprint, _hash(one.training)] for one in candidates],
        settings=wanted.settings,
        words=manifest and manifest["fingerprint"],
        **_input_key(config, plan),
    )
    finished = OUTPUT.finished(output, key, config.overwrite)
    if finished is not None:
        log(f"evaluate: {output} is done and unchanged, skipped")
        return _stage_report(schema.Report.model_validate(finished), 0.0, skipped=True)
    OUTPUT.check(output, config.input, plan.files if plan else ())
    lock = held.enter_context(OUTPUT.lock(output, lambda: OUTPUT.finished(output, key, config.overwrite)))
    prepare_kernels(word_engine())
    for one in candidates:
        prepare_encoding(one.tokenizer, np.dtype(np.int32), None)
    began = time.monotonic()
    if plan is None:
        text, tallies, candidates = measure_table(config, settings.words, manifest, candidates)
    else:
        if manifest is not None:
            candidates = [with_table(one, settings.words, manifest) for one in candidates]
        spark = session()
        text, tallies = _measure(spark, config, plan, candidates)
    OUTPUT.start(lock, key)
    log("evaluate: computing the metrics")
    report = build.report(key, "text" if plan else "words", text, tallies, candidates, wanted)
    write(lock, output, report)
    return _stage_report(report, time.monotonic() - began)


def _input_key(config: JobConfig, plan: InputPlan | None) -> dict:
    if plan is None:
        return {}
    return {
        "input": plan.ledger(),
        "columns": [config.text_column, config.id_column, config.group_column, config.evaluate.parallel_column],
        "parallel_key": config.evaluate.parallel_key,
        "invalid_utf8": config.invalid_utf8,
        **plan.options(),
    }


def _parallel_columns(config: JobConfig) -> tuple[str, ...]:
    column = config.evaluate.parallel_column
    return () if column is None or column in (config.id_column, config.group_column) else (column,)


def _hash(counts: np.ndarray | None) -> str | None:
    return None if counts is None else storage.checksum_bytes(counts.tobytes())


# --- measuring --------------------------------------------------------------------------------------------------------


def measure_table(
    config: JobConfig, source: str, manifest: dict, candidates: list[build.Candidate]
) -> tuple[TextTally, list[TokenTally], list[build.Candidate]]:
    """On this machine; ``exact`` of the candidates then says whose words the table has."""
    measurer = TableMeasurer([one.tokenizer for one in candidates])
    done = 0

    def read() -> tuple[float, dict]:
        return done / max(1, manifest["distinct_words"]), {"words": done}

    with StageProgress("evaluate", read):
        for part in words.WordTable.read_parts(storage.absolute(source), manifest):
            measurer.add(part)
            done += len(part)
    text, tallies = measurer.finish()
    exact = measurer.exact
    candidates = [
        build.Candidate(one.name, one.source, one.tokenizer, one.training, own)
        for one, own in zip(candidates, exact, strict=True)
    ]
    return text, tallies, candidates


def _measure(
    spark: SparkSession, config: JobConfig, plan: InputPlan, candidates: list[build.Candidate]
) -> tuple[TextTally, list[TokenTally]]:
    settings = config.evaluate
    # A function of the input alone: what a task keeps of the most frequent words is the same on any cluster.
    size = min(_MOST_TASK, max(_LEAST_TASK, plan.text_bytes // 64))
    tasks = pack_splits(plan.splits, size)
    log(
        f"evaluate: {len(candidates)} tokenizers, {len(plan.files):,} files, {plan.text_bytes / 1e6:,.1f} MB of text, "
        f"{len(tasks):,} tasks"
    )
    counters = Counters.create(spark)
    pattern = STRIP_LAST_PART if settings.parallel_key == "strip_last_part" else settings.parallel_key
    task = EvaluateTask(
        spark.sparkContext.broadcast(tasks), plan.selection, config.invalid_utf8,
        spark.sparkContext.broadcast([packed.pack(one.tokenizer) for one in candidates]),
        " ".join(one.tokenizer.fingerprint for one in candidates),
        plan.selection.columns, settings.parallel_column, pattern, int(settings.memory_per_task), counters,
    )  # fmt: skip
    rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run_tasks(task), ROW_SCHEMA)
    merged = rows.repartitionById(len(candidates) + 1, "partition").mapInArrow(Merge(len(candidates)), ROW_SCHEMA)
    with (
        StageProgress("evaluate", counters.reader(plan.text_bytes, "documents", "bytes")),
        job_errors("evaluate"),
    ):
        found = {row.partition: bytes(row.data) for row in collect(spark, merged)}
    text = found.pop(len(candidates), None)
    tallies = [
        TokenTally.from_bytes(found.pop(number)) if number in found else TokenTally(one.tokenizer.vocab_size)
        for number, one in enumerate(candidates)
    ]
    return TextTally() if text is None else TextTally.from_bytes(text), tallies


# --- writing ----------------------------------------------------------------------------------------------------------


def write(lock, output: str, report: schema.Report) -> None:
    """metrics.parquet, the page, and metrics.json last."""
    files = {TABLE: metrics_table(report), PAGE: render(report).encode()}
    for name, content in files.items():
        storage.write_bytes(storage.join(output, name), content)
    report.files = [
        schema.File(name=name, bytes=len(content), checksum=storage.checksum_bytes(content))
        for name, content in files.items()
    ]
    OUTPUT.finish(lock, report.model_dump(mode="json"))


def metrics_table(report: schema.Report) -> bytes:
    """metrics.parquet: tokenizer, group (null: all together), metric, value (null: open), a row for each figure."""
    rows = [row for one in report.tokenizers for row in _figures(one)]
    return parquet_bytes(rows, "tokenizer")


def parquet_bytes(rows: list[tuple], first: str) -> bytes:
    columns = list(zip(*rows, strict=True)) or [[], [], [], []]
    kinds = (pa.string(), pa.string(), pa.string(), pa.float64())
    table = pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)],
        names=[first, "group", "metric", "value"],
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _figures(one: schema.TokenizerReport) -> Iterator[tuple[str, str | None, str, float | None]]:
    for group, metrics in (*one.groups.items(), (None, one.overall)):
        for metric, value in metrics.model_dump().items():
            yield one.name, group, metric, value
    for group, value in one.premiums.items():
        yield one.name, group, "premium", value
    for group, value in one.vocabulary.by_group.items():
        yield one.name, group, "tokens_that_serve", value
    overall = {
        "vocab_size": one.vocab_size,
        "gini": one.gini,
        "utilization": one.utilization.fraction,
        "renyi_efficiency_of_used": one.renyi.efficiency_of_used,
        "numbers_alike": one.numbers and one.numbers.alike,
        **{f"glitch_{reason}": n for reason, n in one.glitch.counts.items()},
        **{
            f"{name}: {metric}": value
            for name, cost in one.costs.items()
            for metric, value in cost.model_dump().items()
        },
    }
    for metric, value in overall.items():
        yield one.name, None, metric, value


def _stage_report(report: schema.Report, seconds: float, skipped: bool = False) -> StageReport:
    figures: dict[str, float] = {"documents": report.corpus.documents} if report.corpus.source == "text" else {}
    figures["bytes"] = report.corpus.bytes
    for one in report.tokenizers:
        for metric, label in (("bytes_per_token", "bytes/token"), ("fertility", "tokens/word")):
            value = getattr(one.overall, metric)
            if value is not None:
                figures[f"{one.name}: {label}"] = value
    return StageReport("evaluate", seconds, skipped, figures)
