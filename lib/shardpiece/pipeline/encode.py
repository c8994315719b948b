"""The encode stage: corpus and tokenizer in, token-ID shards and manifest out.

One task writes one shard (see ``encode_task``). A shard that an earlier attempt finished, as its journal entry and
checksums show, is not written again.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict

from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.config import EncodeConfig, JobConfig
from shardpiece.corpus.order import Placement, Validation
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import Columns, InputPlan, plan_input
from shardpiece.errors import ConfigError
from shardpiece.pipeline.encode_task import OUTPUT, EncodeTask
from shardpiece.pipeline.encoded import STATISTICS, DocumentEncoder, Encoding, WorkerTokenizer
from shardpiece.pipeline.kernels import prepare_encoding
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import RESULT_SCHEMA, Counters, plan_key, run_tasks
from shardpiece.pipeline.warm_words import WarmWords, warm_words
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import ShardLayout, finish_formats
from shardpiece.shards.formats.base import ShardSpec
from shardpiece.shards.plan import plan_shards
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.loading import load
from shardpiece.tokenizer.sampling import Sampling
from shardpiece.tokenizer.tokenizer import Tokenizer


def encode(session: Callable[[], SparkSession], config: JobConfig, words: str | None = None) -> StageReport:
    """Encode ``config.input`` into ``config.shards_path``; does nothing when that was done before.

    ``session`` is called, and Spark started, only when there is something to do. ``words``: a word table whose frequent
    words are likely to come, when the configuration names none; it may turn out not to be usable.
    """
    with ExitStack() as held:
        return _encode(session, config, words, held)


def _encode(session: Callable[[], SparkSession], config: JobConfig, words: str | None, held: ExitStack) -> StageReport:
    settings = config.encode
    source = storage.absolute(config.tokenizer_source)
    output = storage.absolute(config.shards_path)
    tokenizer = load(source, settings.tokenizer_pretokenizer)
    tokenizer.engine.check_setting(config.engine_settings, f"the tokenizer {source}")
    eos = tokenizer.special_id(settings.end_of_text(tokenizer.special_tokens)) if settings.append_eos else None
    before, after = _around(settings, tokenizer, eos)
    sampling = _sampling(settings, tokenizer)
    encoding = Encoding(settings.special_tokens_in_text, before, after, settings.empty_documents == "keep", sampling)
    placement = _placement(settings)
    spec = ShardSpec(tokenizer.vocab_size, tokenizer.fingerprint, eos_id=eos)
    layout = ShardLayout(tuple(settings.format), spec, placement.validation)
    layout.check()
    columns = Columns(config.text_column, id=config.id_column)
    plan = plan_input(list_files(config.input), columns)
    shards = plan_shards(plan.splits, int(settings.shard_size))
    key = plan_key(
        stage="encode",
        tokenizer=tokenizer.fingerprint,
        format=list(layout.formats),
        around=[before, after],
        empty_documents=settings.empty_documents,
        special_tokens_in_text=settings.special_tokens_in_text,
        invalid_utf8=config.invalid_utf8,
        columns=[config.text_column, config.id_column],
        input=plan.ledger(),
        shards=[len(shard.splits) for shard in shards],
        **_options(encoding, placement),
    )
    finished = OUTPUT.finished(output, key, config.overwrite)
    if finished is not None:
        log(f"encode: {output} is done and unchanged, skipped")
        return _report(finished, 0.0, skipped=True)
    OUTPUT.check(output, config.input, plan.files)
    lock = held.enter_context(OUTPUT.lock(output, key, config.overwrite))
    worker = WorkerTokenizer(packed.pack(tokenizer), _words(settings, tokenizer, words), int(settings.cache_bytes))
    prepare_encoding(worker.without_words(), layout.dtype(), sampling)
    spark = session()
    OUTPUT.start(lock, key, resume=True)

    log(
        f"encode: {len(plan.files):,} files, {plan.text_bytes / 1e6:,.1f} MB of text, "
        f"{len(shards):,} shards of {', '.join(layout.formats)}"
    )
    if config.id_column and not layout.carries("ids"):
        log(f"encode: {', '.join(layout.formats)} has no place for document ids, id_column is not used")
    counters = Counters.create(spark)
    documents = DocumentEncoder(
        columns, config.invalid_utf8, layout.dtype(), layout.needs_ids, encoding, placement,
        spark.sparkContext.broadcast(worker), worker.key, counters,
    )  # fmt: skip
    task = EncodeTask(spark.sparkContext.broadcast(shards), output, key, layout, documents)
    results_frame = spark.range(0, len(shards), 1, max(1, len(shards))).mapInArrow(run_tasks(task), RESULT_SCHEMA)
    reader = counters.reader(plan.text_bytes, "documents", "bytes", "tokens")
    with StageProgress("encode", reader) as progress, job_errors("encode"):
        results = [json.loads(row.result) for row in collect(spark, results_frame)]
    resumed = sum(result.pop("resumed") for result in results)
    if resumed:
        log(f"encode: {resumed:,} of {len(shards):,} shards were finished by an earlier run")
    manifest = _manifest(config, tokenizer, key, encoding, placement, layout, plan, results)
    OUTPUT.finish(lock, manifest)
    if manifest["totals"]["replaced_documents"]:
        log(f"encode: {manifest['totals']['replaced_documents']:,} documents had invalid UTF-8, replaced with U+FFFD")
    return _report(manifest, progress.seconds)


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


def _placement(settings: EncodeConfig) -> Placement:
    validation = None if settings.validation is None else Validation(**settings.validation.model_dump())
    return Placement(settings.seed, None, validation, settings.shuffle != "none")


def _options(encoding: Encoding, placement: Placement) -> dict:
    """What goes into plan key and manifest when it is not as by default."""
    options = {} if encoding.sampling is None else {"sampling": asdict(encoding.sampling)}
    if placement.validation is not None:
        options["validation"] = asdict(placement.validation)
    return options


def _words(settings: EncodeConfig, tokenizer: Tokenizer, own: str | None) -> WarmWords | None:
    path = settings.warm_words or own
    if path is None:
        return None
    return warm_words(storage.absolute(path), tokenizer, int(settings.cache_bytes), settings.warm_words is not None)


def _manifest(
    config: JobConfig,
    tokenizer: Tokenizer,
    key: str,
    encoding: Encoding,
    placement: Placement,
    layout: ShardLayout,
    plan: InputPlan,
    results: list[dict],
) -> dict:
    shards = sorted(results, key=lambda result: result["name"])
    for shard in shards:
        del shard["key"]
    described = finish_formats(storage.absolute(config.shards_path), shards, layout)
    return {
        "format": manifests.FORMAT,
        "version": manifests.VERSION,
        "key": key,
        "tokenizer": tokenizer.fingerprint,
        "engine": tokenizer.engine.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "formats": described,
        "around": {"before": list(encoding.before), "after": list(encoding.after)},
        **_options(encoding, placement),
        "empty_documents": config.encode.empty_documents,
        "special_tokens_in_text": config.encode.special_tokens_in_text,
        "invalid_utf8": config.invalid_utf8,
        "totals": {name: sum(shard[name] for shard in shards) for name in STATISTICS},
        "input": plan.ledger(),
        "shards": shards,
    }


def _report(manifest: dict, seconds: float, skipped: bool = False) -> StageReport:
    totals = manifest["totals"]
    figures = {
        "documents": totals["documents"],
        "bytes": totals["bytes"],
        "tokens": totals["tokens"],
        "shards": len(manifest["shards"]),
    }
    before, after = manifests.around(manifest)
    text_tokens = totals["tokens"] - totals["documents"] * (len(before) + len(after))
    if text_tokens:
        figures["bytes/token"] = totals["bytes"] / text_tokens
    return StageReport("encode", seconds, skipped, figures)
