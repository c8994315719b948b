"""The encode stage: corpus and tokenizer in, token-ID shards and manifest out.

One task writes one shard (see ``encode_task``). A shard that an earlier attempt finished, as its journal entry and
checksums show, is not written again.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.config import EncodeConfig, JobConfig
from shardpiece.corpus.base import Columns, InputPlan, Selection
from shardpiece.corpus.mixture import Share
from shardpiece.corpus.order import Placement
from shardpiece.corpus.sources import dataframe_of
from shardpiece.errors import ConfigError
from shardpiece.lock import RunLock
from shardpiece.pipeline import increments
from shardpiece.pipeline.encode_task import OUTPUT, EncodeTask
from shardpiece.pipeline.encoded import STATISTICS, DocumentEncoder, Encoding, WorkerTokenizer
from shardpiece.pipeline.frames import FrameInput, open_frame
from shardpiece.pipeline.increments import Earlier
from shardpiece.pipeline.inputs import plan_job
from shardpiece.pipeline.kernels import prepare_encoding
from shardpiece.pipeline.measure import Measured, measure
from shardpiece.pipeline.placing import check_frame, check_repeats, mixture_report, placement_of, shares_of
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.shuffled import ShuffledRun
from shardpiece.pipeline.tail_task import TailTask
from shardpiece.pipeline.tasks import RESULT_SCHEMA, Counters, plan_key, run_tasks
from shardpiece.pipeline.warm_words import WarmWords, warm_words
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import ShardLayout, finish_formats
from shardpiece.shards.formats.base import ShardSpec
from shardpiece.shards.manifest import summed_statistics, write_statistics
from shardpiece.shards.packing import STATISTICS as PACKING_STATISTICS
from shardpiece.shards.packing import Packing
from shardpiece.shards.plan import Shard, plan_shards, plan_shuffled, shard_name, shard_number
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.loading import load
from shardpiece.tokenizer.sampling import Sampling
from shardpiece.tokenizer.tokenizer import Tokenizer

# Settings that manifests also name at the top, where they are not as by default: readers have to know of them.
_OPTIONS = ("where", "sample", "sampling", "packing", "shuffle", "validation", "mixture")


@dataclass(frozen=True)
class Planned:
    """What an encode run is about to do. ``found``: what its output holds that it adds to; ``plan``, ``shards``: of the
    input that is new; ``made_with``: all settings that decide what the shards hold; ``finished``: the manifest when there is
    nothing to do."""

    output: str
    tokenizer: Tokenizer
    encoding: Encoding
    placement: Placement
    shares: dict[str, Share]
    layout: ShardLayout
    made_with: dict
    found: Earlier
    plan: InputPlan
    shards: list[Shard]
    key: str
    finished: dict | None
    why_finished: str = ""


def plan_encode(config: JobConfig, frame: FrameInput | None = None) -> Planned:
    """``frame``: the input where that is a table or query. Reads the tokenizer, the input's metadata and what the output has; writes nothing. Raises OutputError for an output
    of other settings, ConfigError and InputError for what cannot be encoded."""
    settings = config.encode
    source = storage.absolute(config.tokenizer_source)
    output = storage.absolute(config.shards_path)
    tokenizer = load(source, settings.tokenizer_pretokenizer)
    tokenizer.engine.check_setting(config.engine_settings, f"the tokenizer {source}")
    eos = tokenizer.special_id(settings.end_of_text(tokenizer.special_tokens)) if settings.append_eos else None
    before, after = _around(settings, tokenizer, eos)
    sampling = _sampling(settings, tokenizer)
    encoding = Encoding(settings.special_tokens_in_text, before, after, settings.empty_documents == "keep", sampling)
    placement, shares = placement_of(settings), shares_of(config)
    packing = _packing(settings, tokenizer)
    plan = whole = frame.plan if frame else plan_job(config, _columns(config), "encode")
    spec = ShardSpec(
        tokenizer.vocab_size, tokenizer.fingerprint, packing and packing.row_length, packing is not None,
        metadata=plan.metadata, eos_id=eos,
    )  # fmt: skip
    layout = ShardLayout(
        tuple(settings.format), spec, placement.validation, packing, settings.seed if placement.shuffled else None,
        int(settings.memory_per_task),
    )  # fmt: skip
    layout.check()
    made_with = _made_with(config, tokenizer, encoding, layout, plan.selection)
    found = Earlier()
    if settings.incremental:
        found = increments.earlier(OUTPUT, output, made_with, config.overwrite)
        plan = increments.unseen(found, whole, config.changed_input)
    shuffled = settings.shuffle == "global"
    if shuffled:
        shards = plan_shuffled(
            frame.text_bytes if frame else plan.text_bytes, int(settings.shard_size), found.next_number
        )
    else:
        shards = plan_shards(plan.splits, int(settings.shard_size), found.next_number)
    key = plan_key(
        stage="encode",
        **made_with,
        input=plan.ledger(),
        shards=int(settings.shard_size) if shuffled else [len(shard.splits) for shard in shards],
        **_left_out(plan),
        **({"after": found.key} if found.key else {}),
    )
    if settings.incremental:
        finished = found.manifest if not plan.files else None
        why = f"nothing new: all {len(whole.files):,} files are in {output} already"
    else:
        finished = OUTPUT.finished(output, key, config.overwrite)
        why = f"{output} is done and unchanged"
    return Planned(
        output, tokenizer, encoding, placement, shares, layout, made_with, found, plan, shards, key, finished, why
    )  # fmt: skip


def encode(session: Callable[[], SparkSession], config: JobConfig, words: str | None = None) -> StageReport:
    """Encode ``config.input`` into ``config.shards_path``; does nothing when that was done before.

    ``session`` is called, and Spark started, only when there is something to do. ``words``: a word table whose frequent
    words are likely to come, when the configuration names none; it may turn out not to be usable.
    """
    frame = None
    if dataframe_of(config.input):
        check_frame(config)
        frame = open_frame(session, config, _columns(config)).measured()
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
    if manifest["totals"]["replaced_documents"]:
        log(f"encode: {manifest['totals']['replaced_documents']:,} documents had invalid UTF-8, replaced with U+FFFD")
    if manifest["totals"]["filtered_documents"]:
        log(
            f"encode: {manifest['totals']['filtered_documents']:,} documents of those read are left out by where and sample"
        )
    if manifest["totals"]["bad_rows"]:
        log(
            f"encode: {manifest['totals']['bad_rows']:,} lines that are no JSON objects of the expected types are left out"
        )
    return _report(manifest, progress.seconds)


def _columns(config: JobConfig) -> Columns:
    metadata = tuple(config.encode.metadata_columns)
    return Columns(config.text_column, config.id_column, config.group_column, metadata)


def _around(settings: EncodeConfig, tokenizer: Tokenizer, eos: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after every document: the tokenizer's template, and the end-of-text token unless that ends with
    it."""
    template = tokenizer.template
    if not settings.add_special_tokens:
        return (), () if eos is None else (eos,)
    if not template:
        raise ConfigError("encode.add_special_tokens: the tokenizer has nothing that it puts around a text")
    return template.before, template.after if eos is None or template.after[-1:] == (eos,) else (*template.after, eos)


def _sampling(settings: EncodeConfig, tokenizer: Tokenizer) -> Sampling | None:
    """Raises ConfigError for what the tokenizer's model has no use for."""
    if settings.sampling is None:
        return None
    sampling = Sampling(**settings.sampling.model_dump())
    sampling.check(tokenizer.model.kind)
    return None if sampling.deterministic else sampling


def _packing(settings: EncodeConfig, tokenizer: Tokenizer) -> Packing | None:
    """Raises ConfigError for a token to pad with that there is not, where one is named."""
    if settings.packing is None:
        return None
    if settings.metadata_columns:
        raise ConfigError(
            "encode.metadata_columns: packed sequences hold several documents, and have no place for them"
        )
    values = settings.packing.model_dump()
    token = values.pop("pad_token")
    if token is None:
        try:
            token = settings.end_of_text(tokenizer.special_tokens)
        except ConfigError:
            if settings.eos_token is not None:
                raise
            log(
                "encode: the tokenizer has no end-of-text token, sequences are padded with the id 0 (encode.packing.pad_token)"
            )
    return Packing(**values, pad_id=0 if token is None else tokenizer.special_id(token))


def _made_with(
    config: JobConfig, tokenizer: Tokenizer, encoding: Encoding, layout: ShardLayout, selection: Selection
) -> dict:
    """All settings that decide what the shards hold, for plan key and manifest."""
    return {
        "tokenizer": tokenizer.fingerprint,
        "format": list(layout.formats),
        "around": {"before": list(encoding.before), "after": list(encoding.after)},
        "empty_documents": config.encode.empty_documents,
        "special_tokens_in_text": config.encode.special_tokens_in_text,
        "invalid_utf8": config.invalid_utf8,
        "columns": {**asdict(selection.columns), "metadata": list(selection.columns.metadata)},
        "where": selection.where,
        "sample": None if selection.sample is None else asdict(selection.sample),
        "text_documents": selection.text_documents,
        "bad_rows": selection.bad_rows,
        "sampling": None if encoding.sampling is None else asdict(encoding.sampling),
        "packing": None if layout.packing is None else asdict(layout.packing),
        "shuffle": None if layout.seed is None else {"kind": config.encode.shuffle, "seed": layout.seed},
        "validation": None if layout.validation is None else asdict(layout.validation),
        "mixture": None
        if config.encode.mixture is None
        else {"groups": config.encode.mixture, "seed": config.encode.seed},
    }


def _left_out(plan: InputPlan) -> dict:
    """The files that were bad, for plan key and manifest, where there are any."""
    return {"skipped_files": [asdict(file) for file in plan.skipped]} if plan.skipped else {}


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
        **_left_out(planned.plan),
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
