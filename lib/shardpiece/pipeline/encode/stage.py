"""The encode stage: corpus and tokenizer in, token-ID shards and manifest out.

One task writes one shard (see ``task``). A shard that an earlier attempt finished, as its journal entry and
checksums show, is not written again.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.config import EncodeConfig, JobConfig
from shardpiece.corpus.sources import dataframe_of
from shardpiece.lock import RunLock
from shardpiece.pipeline.encode import increments
from shardpiece.pipeline.encode.documents import STATISTICS, DocumentEncoder, WorkerTokenizer
from shardpiece.pipeline.encode.mixture import Measured, measure
from shardpiece.pipeline.encode.placing import check_frame, check_repeats, mixture_report
from shardpiece.pipeline.encode.plan import Planned, columns_of, left_out, plan_encode
from shardpiece.pipeline.encode.shuffled import ShuffledRun
from shardpiece.pipeline.encode.tails import TailTask
from shardpiece.pipeline.encode.task import OUTPUT, EncodeTask
from shardpiece.pipeline.encode.warm_words import WarmWords, warm_words
from shardpiece.pipeline.frames import FrameInput, open_frame
from shardpiece.pipeline.kernels import prepare_encoding
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import RESULT_SCHEMA, Counters, run_tasks
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import ShardLayout, finish_formats
from shardpiece.shards.manifest import summed_statistics, write_statistics
from shardpiece.shards.packing import STATISTICS as PACKING_STATISTICS
from shardpiece.shards.plan import plan_shuffled, shard_name, shard_number
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.tokenizer import Tokenizer

# Settings that manifests also name at the top, where they are not as by default: readers have to know of them.
_OPTIONS = ("where", "sample", "sampling", "packing", "shuffle", "validation", "mixture")
# Formats whose readers see each document by itself.
_ROWS_APART = {"parquet", "arrow", "mds"}


def encode(session: Callable[[], SparkSession], config: JobConfig, words: str | None = None) -> StageReport:
    """Encode ``config.input`` into ``config.shards_path``; does nothing when that was done before.

    ``session`` is called, and Spark started, only when there is something to do. ``words``: a word table whose frequent
    words are likely to come, when the configuration names none; it may turn out not to be usable.
    """
    frame = None
    if dataframe_of(config.input):
        check_frame(config)
        frame = open_frame(session, config, columns_of(config)).measured()
    planned = plan_encode(config, frame)
    if planned.finished is not None:
        log(f"encode: {planned.why_finished}, skipped")
        return _report(planned.finished, 0.0, skipped=True)
    OUTPUT.check(planned.output, config.input, planned.plan.files)
    if config.encode.incremental:
        again = partial(
            increments.check_again, OUTPUT, planned.output, planned.found, planned.made_with, config.overwrite
        )
    else:
        again = partial(OUTPUT.finished, planned.output, planned.key, config.overwrite)
    with OUTPUT.lock(planned.output, again) as lock:
        return _encode(session, config, words, planned, frame, lock)


def _encode(
    session: Callable[[], SparkSession],
    config: JobConfig,
    words: str | None,
    planned: Planned,
    frame: FrameInput | None,
    lock: RunLock,
) -> StageReport:
    settings = config.encode
    output, tokenizer, encoding, layout = planned.output, planned.tokenizer, planned.encoding, planned.layout
    found, plan, shards, key = planned.found, planned.plan, planned.shards, planned.key
    worker = WorkerTokenizer(packed.pack(tokenizer), _words(settings, tokenizer, words), int(settings.cache_bytes))
    prepare_encoding(worker.without_words(), layout.dtype(), encoding.sampling)
    spark = session()
    OUTPUT.start(lock, key, resume=True, settings=planned.made_with, add=found.manifest is not None)

    new = " new" if found.manifest is not None else ""
    text_bytes = frame.text_bytes if frame else plan.text_bytes
    what = frame.name if frame else f"{len(plan.files):,}{new} files"
    log(f"encode: {what}, {text_bytes / 1e6:,.1f} MB of text")
    if config.id_column and not layout.keeps_ids and not layout.needs_ids and not planned.shares:
        log(f"encode: {', '.join(layout.formats)} has no place for document ids, id_column is not used")
    if not (encoding.before or encoding.after) and (layout.packing or not set(layout.formats) <= _ROWS_APART):
        log("encode: nothing stands between documents: pass --append-eos to end each with the end-of-text token")
    if settings.metadata_columns and not layout.carries("metadata"):
        log(f"encode: {', '.join(layout.formats)} has no place for metadata, metadata_columns are not used")
    documents = DocumentEncoder(
        plan.selection, config.invalid_utf8, layout.dtype(), layout.keeps_ids or layout.validation is not None, encoding,
        planned.placement, spark.sparkContext.broadcast(worker), worker.key, Counters.create(spark),
    )  # fmt: skip
    shuffled = settings.shuffle == "global"
    measured = None
    if planned.shares:
        measured = measure(spark, frame or plan.splits, documents, planned.shares, output, key, settings.incremental)
        check_repeats(config, measured.repeats)
        placement = replace(planned.placement, takes=measured.takes)
        documents = replace(documents, placement=placement, counters=Counters.create(spark))
        if shuffled:
            shards = plan_shuffled(measured.text_bytes, int(settings.shard_size), found.next_number)
    log(f"encode: {len(shards):,} shards of {', '.join(layout.formats)}")
    # What is shuffled passes twice.
    reader = documents.counters.reader((1 + shuffled) * text_bytes, "documents", "bytes", "tokens")
    with StageProgress("encode", reader) as progress, job_errors("encode"):
        if shuffled:
            run = ShuffledRun(shards, output, key, layout, documents, int(settings.memory_per_task))
            results = run.encode(spark, frame or plan.splits, int(settings.shard_size))
        else:
            task = EncodeTask(spark.sparkContext.broadcast(shards), output, key, layout, documents)
            frame = spark.range(0, len(shards), 1, max(1, len(shards))).mapInArrow(run_tasks(task), RESULT_SCHEMA)
            results = [json.loads(row.result) for row in collect(spark, frame)]
        results.sort(key=lambda result: shard_number(result["name"]))
        tails = [tail for result in results for tail in result.pop("tails", [])]
        if tails:
            number = found.next_number + len(shards)
            last = TailTask(shard_name(number, number), spark.sparkContext.broadcast(tails), output, key, layout)
            tails_frame = spark.range(0, 1, 1, 1).mapInArrow(run_tasks(last), RESULT_SCHEMA)
            results += [json.loads(row.result) for row in collect(spark, tails_frame)]
    resumed = sum(result.pop("resumed") for result in results)
    if resumed:
        log(f"encode: {resumed:,} of {len(results):,} shards were finished by an earlier run")
    manifest = _manifest(planned, measured, results)
    OUTPUT.finish(lock, manifest)
    _say_what_was_left_out(config, results)
    return _report(manifest, progress.seconds)


def _say_what_was_left_out(config: JobConfig, results: list[dict]) -> None:
    """Of this run, not of the increments before it."""
    counts = {name: sum(result[name] for result in results) for name in STATISTICS}
    if counts["replaced_documents"]:
        log(f"encode: {counts['replaced_documents']:,} documents had invalid UTF-8, replaced with U+FFFD")
    if counts["filtered_documents"]:
        log(f"encode: {counts['filtered_documents']:,} documents of those read are left out by where and sample")
    if counts["bad_rows"]:
        log(f"encode: {counts['bad_rows']:,} lines that are no JSON objects of the expected types are left out")
    if not counts["documents"]:
        why = ": where and sample leave none" if config.where or config.sample else ""
        log(f"encode: there are no documents in the shards{why}")


def _words(settings: EncodeConfig, tokenizer: Tokenizer, own: str | None) -> WarmWords | None:
    path = settings.warm_words or own
    if path is None:
        return None
    return warm_words(storage.absolute(path), tokenizer, int(settings.cache_bytes), settings.warm_words is not None)


def _manifest(planned: Planned, measured: Measured | None, results: list[dict]) -> dict:
    """Of what was there and of what is new; writes what stands beside the shards, and the statistics."""
    output, tokenizer, found = planned.output, planned.tokenizer, planned.found
    new = sorted(results, key=lambda result: shard_number(result["name"]))
    counted = summed_statistics(output, new, tokenizer.vocab_size)
    for shard in new:
        del shard["key"], shard["statistics"]
    shards = [*found.shards, *new]
    increment = {"key": planned.key, "files": len(planned.plan.files), "shards": len(new)}
    if measured is not None:
        increment["mixture"] = mixture_report(measured, counted.groups)
    return {
        "format": manifests.FORMAT,
        "version": manifests.VERSION,
        "key": planned.key,
        "tokenizer": tokenizer.fingerprint,
        "engine": tokenizer.engine.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "formats": finish_formats(output, shards, planned.layout),
        "around": planned.made_with["around"],
        **{name: planned.made_with[name] for name in _OPTIONS if planned.made_with[name] is not None},
        "settings": planned.made_with,
        "totals": _totals(shards, planned.layout),
        "increments": [*found.increments, increment],
        "statistics": [*found.statistics, write_statistics(output, len(found.increments), counted)],
        "input": [*found.ledger, *planned.plan.ledger()],
        **left_out(planned.plan),
        "shards": shards,
    }


def _totals(shards: list[dict], layout: ShardLayout) -> dict:
    totals = {name: sum(shard[name] for shard in shards) for name in STATISTICS}
    if layout.packing is None:
        return totals
    sides = [side for shard in shards for side in shard.get("splits", {"": shard}).values()]
    packed = {name: sum(side["packing"][name] for side in sides) for name in PACKING_STATISTICS}
    return {**totals, "rows": sum(side["rows"] for side in sides), "packing": packed}


def _report(manifest: dict, seconds: float, skipped: bool = False) -> StageReport:
    totals = manifest["totals"]
    figures = {
        "documents": totals["documents"],
        "bytes": totals["bytes"],
        "tokens": totals["tokens"],
        "shards": len(manifest["shards"]),
    }
    if "packing" in totals:
        figures["sequences"] = totals["rows"]
        figures |= {name.replace("_", " "): totals["packing"][name] for name in ("pad_tokens", "dropped_tokens")}
    before, after = manifests.around(manifest)
    text_tokens = totals["tokens"] - totals["documents"] * (len(before) + len(after))
    if text_tokens:
        figures["bytes/token"] = totals["bytes"] / text_tokens
    return StageReport("encode", seconds, skipped, figures)
