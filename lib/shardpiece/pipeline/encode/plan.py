"""What an encode run is about to do: found out without Spark, and without writing anything."""

from dataclasses import asdict, dataclass

from shardpiece import storage
from shardpiece.config import EncodeConfig, JobConfig
from shardpiece.corpus.base import Columns, InputPlan, Selection
from shardpiece.corpus.mixture import Share
from shardpiece.corpus.order import Placement
from shardpiece.errors import ConfigError
from shardpiece.pipeline.encode import increments
from shardpiece.pipeline.encode.documents import Encoding
from shardpiece.pipeline.encode.increments import Earlier
from shardpiece.pipeline.encode.placing import placement_of, shares_of
from shardpiece.pipeline.encode.task import OUTPUT
from shardpiece.pipeline.frames import FrameInput
from shardpiece.pipeline.inputs import plan_job
from shardpiece.pipeline.progress import log
from shardpiece.pipeline.tasks import plan_key
from shardpiece.shards.builder import ShardLayout
from shardpiece.shards.formats.base import ShardSpec
from shardpiece.shards.packing import Packing
from shardpiece.shards.plan import Shard, plan_shards, plan_shuffled
from shardpiece.tokenizer.loading import load
from shardpiece.tokenizer.sampling import Sampling
from shardpiece.tokenizer.tokenizer import Tokenizer


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
    plan = whole = frame.plan if frame else plan_job(config, columns_of(config), "encode")
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
        **left_out(plan),
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
        "metadata_types": {name: str(selection.type_of(name)) for name in selection.columns.metadata} or None,
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


def left_out(plan: InputPlan) -> dict:
    """The files that were bad, for plan key and manifest, where there are any."""
    return {"skipped_files": [asdict(file) for file in plan.skipped]} if plan.skipped else {}


def columns_of(config: JobConfig) -> Columns:
    metadata = tuple(config.encode.metadata_columns)
    return Columns(config.text_column, config.id_column, config.group_column, metadata)
