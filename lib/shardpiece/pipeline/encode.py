"""The encode stage: corpus and tokenizer in, token-ID shards and manifest out.

One task writes one shard. A shard that an earlier attempt finished, as its journal entry and checksums show, is not
written again.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast
from pyspark.sql import SparkSession

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import Columns, Split, plan_input
from shardpiece.pipeline.kernels import prepare_kernels
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import (
    RESULT_SCHEMA,
    Counters,
    document_errors,
    plain_values,
    plan_key,
    read_documents,
    result_batch,
    run_tasks,
)
from shardpiece.shards import manifest as manifests
from shardpiece.shards.plan import Shard, plan_shards
from shardpiece.shards.writers import TokenBatch, token_dtype, write_shard
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.loading import load
from shardpiece.tokenizer.tokenizer import Tokenizer

_STATISTICS = ("documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "tokens")
OUTPUT = OutputKind(
    what="shards",
    manifest=manifests.MANIFEST,
    names=rf"shard-\d{{5,}}\.(?:parquet|bin|ends\.npy)|{manifests.JOURNAL}",
    read=manifests.read_manifest,
    key=lambda manifest: manifest["key"],
    files=lambda manifest: [file for shard in manifest["shards"] for file in shard["files"]],
)


def encode(session: Callable[[], SparkSession], config: JobConfig) -> StageReport:
    """Encode ``config.input`` into ``config.shards_path``; does nothing when that was done before.

    ``session`` is called, and Spark started, only when there is something to do.
    """
    settings = config.encode
    source = storage.absolute(config.tokenizer_source)
    output = storage.absolute(config.shards_path)
    tokenizer = load(source, settings.tokenizer_pretokenizer)
    tokenizer.engine.check_setting(config.engine_settings, f"the tokenizer {source}")
    eos = tokenizer.special_id(settings.end_of_text(tokenizer.special_tokens)) if settings.append_eos else None
    columns = Columns(config.text_column, id=config.id_column)
    plan = plan_input(list_files(config.input), columns)
    shards = plan_shards(plan.splits, int(settings.shard_size))
    key = plan_key(
        stage="encode",
        tokenizer=tokenizer.fingerprint,
        format=settings.format,
        eos=eos,
        empty_documents=settings.empty_documents,
        special_tokens_in_text=settings.special_tokens_in_text,
        invalid_utf8=config.invalid_utf8,
        columns=[config.text_column, config.id_column],
        input=plan.ledger(),
        shards=[len(shard.splits) for shard in shards],
    )
    finished = OUTPUT.finished(output, key, config.overwrite)
    if finished is not None:
        log(f"encode: {output} is done and unchanged, skipped")
        return _report(finished, 0.0, skipped=True)
    OUTPUT.check(output, config.input, plan.files)
    prepare_kernels(tokenizer.engine)
    spark = session()
    OUTPUT.start(output, key, resume=True)

    log(
        f"encode: {len(plan.files):,} files, {plan.text_bytes / 1e6:,.1f} MB of text, "
        f"{len(shards):,} shards of {settings.format}"
    )
    if config.id_column and settings.format == "bin":
        log("encode: bin has no place for document ids, id_column is not used")
    counters = Counters.create(spark)
    task = EncodeTask(
        spark.sparkContext.broadcast(shards), columns, config.invalid_utf8, output, key, settings.format, eos,
        settings.empty_documents == "keep", settings.special_tokens_in_text, tokenizer.fingerprint,
        spark.sparkContext.broadcast(artifact.to_files(tokenizer)), counters,
    )  # fmt: skip
    results_frame = spark.range(0, len(shards), 1, max(1, len(shards))).mapInArrow(run_tasks(task), RESULT_SCHEMA)
    reader = counters.reader(plan.text_bytes, "documents", "bytes", "tokens")
    with StageProgress("encode", reader) as progress, job_errors("encode"):
        results = [json.loads(row.result) for row in collect(spark, results_frame)]
    resumed = sum(result.pop("resumed") for result in results)
    if resumed:
        log(f"encode: {resumed:,} of {len(shards):,} shards were finished by an earlier run")
    manifest = _manifest(config, tokenizer, key, eos, plan, results)
    OUTPUT.finish(output, manifest)
    if manifest["totals"]["replaced_documents"]:
        log(f"encode: {manifest['totals']['replaced_documents']:,} documents had invalid UTF-8, replaced with U+FFFD")
    return _report(manifest, progress.seconds)


@dataclass(frozen=True)
class EncodeTask:
    """Encodes one shard; called on executors."""

    shards: Broadcast  # of list[Shard]: unpickled once per worker, not once per task
    columns: Columns
    invalid_utf8: str
    output: str
    key: str
    shard_format: str
    eos: int | None
    keep_empty: bool
    special_tokens_in_text: str
    fingerprint: str
    tokenizer_files: Broadcast
    counters: Counters

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        shard = self.shards.value[index]
        entry = manifests.read_journal_entry(self.output, shard.name, self.key)
        resumed = entry is not None
        if entry is None:
            OUTPUT.still_ours(self.output, self.key)
            entry = self._encode(shard)
            OUTPUT.still_ours(self.output, self.key)
            storage.write_bytes(manifests.journal_path(self.output, shard.name), storage.pretty_json(entry))
        self.counters.planned.add(shard.text_bytes)
        yield result_batch([{**entry, "resumed": resumed}])

    def _encode(self, shard: Shard) -> dict:
        tokenizer = _worker_tokenizer(self.fingerprint, self.tokenizer_files)
        statistics = dict.fromkeys(_STATISTICS, 0)
        batches = self._batches(shard, tokenizer, statistics)
        files = write_shard(self.output, shard.name, self.shard_format, tokenizer.vocab_size, batches)
        return {
            "name": shard.name,
            "key": self.key,
            "files": [file.as_dict() for file in files],
            **statistics,
            "sources": shard.sources(),
        }

    def _batches(self, shard: Shard, tokenizer: Tokenizer, statistics: dict[str, int]) -> Iterator[TokenBatch]:
        for split, row, batch, documents in read_documents(shard.splits, self.columns, self.invalid_utf8):
            with document_errors(split, row):
                tokens, offsets = tokenizer.encode_documents(documents, self.special_tokens_in_text)
            ids = self._ids(split, row, batch)
            if not self.keep_empty:
                kept = np.diff(documents.offsets) > 0
                ids = ids.filter(pa.array(kept))
                offsets = np.concatenate([offsets[:1], offsets[1:][kept]])
            if self.eos is not None:
                tokens = np.insert(tokens, offsets[1:], self.eos).astype(np.int32)
                offsets = offsets + np.arange(len(offsets))
            statistics["documents"] += len(offsets) - 1
            statistics["null_documents"] += documents.nulls
            statistics["empty_documents"] += documents.empty
            statistics["replaced_documents"] += documents.replaced
            statistics["bytes"] += documents.size
            statistics["tokens"] += len(tokens)
            self.counters.documents.add(len(documents))
            self.counters.bytes.add(documents.size)
            self.counters.tokens.add(len(tokens))
            yield TokenBatch(ids, tokens, offsets)

    def _ids(self, split: Split, row: int, batch: pa.RecordBatch) -> pa.Array:
        """The id column as strings, or FILE:ROW."""
        if self.columns.id:
            return plain_values(split, batch, self.columns.id)
        rows = pa.array(np.arange(row, row + batch.num_rows)).cast(pa.string())
        return pc.binary_join_element_wise(pa.scalar(split.path), rows, ":")


_TOKENIZERS: dict[str, Tokenizer] = {}


def _worker_tokenizer(fingerprint: str, files: Broadcast) -> Tokenizer:
    """The broadcast tokenizer, built once per worker process."""
    if fingerprint not in _TOKENIZERS:
        _TOKENIZERS.clear()
        _TOKENIZERS[fingerprint] = artifact.from_files(files.value)
    return _TOKENIZERS[fingerprint]


def _manifest(config, tokenizer, key, eos, plan, results) -> dict:
    shards = sorted(results, key=lambda result: result["name"])
    for shard in shards:
        del shard["key"]
    return {
        "format": manifests.FORMAT,
        "version": manifests.VERSION,
        "key": key,
        "tokenizer": tokenizer.fingerprint,
        "engine": tokenizer.engine.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "shard_format": config.encode.format,
        "dtype": token_dtype(tokenizer.vocab_size).name if config.encode.format == "bin" else "int32",
        "eos": {"appended": eos is not None, "id": eos},
        "empty_documents": config.encode.empty_documents,
        "special_tokens_in_text": config.encode.special_tokens_in_text,
        "invalid_utf8": config.invalid_utf8,
        "totals": {name: sum(shard[name] for shard in shards) for name in _STATISTICS},
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
    text_tokens = totals["tokens"] - (totals["documents"] if manifest["eos"]["appended"] else 0)
    if text_tokens:
        figures["bytes/token"] = totals["bytes"] / text_tokens
    return StageReport("encode", seconds, skipped, figures)
