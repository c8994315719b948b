"""The commands: one stage, or the whole job with each stage skipped when it is done and unchanged."""

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.corpus.base import Columns
from shardpiece.corpus.sources import dataframe_of
from shardpiece.errors import ConfigError
from shardpiece.pipeline import count, sweep, train
from shardpiece.pipeline.encode import stage as encode
from shardpiece.pipeline.evaluate import stage as evaluate
from shardpiece.pipeline.inputs import plan_job
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import lazy_session
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.formats import huggingface_text


def run_count(config: JobConfig) -> StageReport:
    with lazy_session(config, "count") as session:
        return count.count(session, config)


def run_train(config: JobConfig) -> StageReport:
    with lazy_session(config, "train") as session:
        return train.train(config, session)


def run_encode(config: JobConfig) -> StageReport:
    with lazy_session(config, "encode") as session:
        return encode.encode(session, config)


def run_evaluate(config: JobConfig) -> StageReport:
    with lazy_session(config, "evaluate") as session:
        return evaluate.evaluate(session, config)


def run_sweep(config: JobConfig) -> StageReport:
    with lazy_session(config, "sweep") as session:
        return sweep.sweep(config, session)


def run_all(config: JobConfig) -> list[StageReport]:
    """Every stage in order, in one Spark session."""
    _check(config)
    with lazy_session(config, "run") as session:
        return [
            count.count(session, config),
            train.train(config, session),
            encode.encode(session, config, config.words_path),
        ]


def places(config: JobConfig) -> dict[str, str]:
    """Where the results of a whole run lie."""
    return {
        "word table": storage.absolute(config.words_path),
        **tokenizer_places(config),
        "shards": storage.absolute(config.shards_path),
    }


def tokenizer_places(config: JobConfig) -> dict[str, str]:
    """Where training puts its results."""
    paths = config.tokenizer_paths
    if len(paths) == 1:
        return {"tokenizer": storage.absolute(*paths.values())}
    return {f"tokenizer {size:,}": storage.absolute(path) for size, path in paths.items()}


def _check(config: JobConfig) -> None:
    """Find now what the last stage would find after hours."""
    if config.train.words or config.encode.tokenizer:
        raise ConfigError(
            "train.words and encode.tokenizer are for single stages: in a whole run each stage reads the one before"
        )
    if config.encode.add_special_tokens:
        raise ConfigError(
            "encode.add_special_tokens is for tokenizers from elsewhere: one that is trained here has nothing to put around "
            "a text"
        )
    if config.encode.append_eos:
        config.encode.end_of_text(config.train.special_tokens)
    engine = TextEngine(*config.engine_to_count)
    huggingface_text.check(engine, config.train.style == "byte-level")
    # A DataFrame is looked at when there is a session.
    columns = Columns(config.text_column, config.id_column, config.group_column)
    files = [] if dataframe_of(config.input) else plan_job(config, columns).files
    kinds = {"word table": count.OUTPUT, "shards": encode.OUTPUT}
    for what, path in places(config).items():
        kinds.get(what, train.OUTPUT).check(path, config.input, files)
