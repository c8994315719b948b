"""The whole job: count, train, encode, each skipped when it is done and unchanged."""

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.errors import ConfigError
from shardpiece.pipeline.count import count
from shardpiece.pipeline.encode import encode
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.session import spark_session
from shardpiece.pipeline.train import train


def run_count(config: JobConfig) -> StageReport:
    with spark_session(config, "count") as spark:
        return count(spark, config)


def run_train(config: JobConfig) -> StageReport:
    return train(config)


def run_encode(config: JobConfig) -> StageReport:
    with spark_session(config, "encode") as spark:
        return encode(spark, config)


def run_all(config: JobConfig) -> list[StageReport]:
    """Every stage in order, in one Spark session."""
    if config.train.words or config.encode.tokenizer:
        raise ConfigError(
            "train.words and encode.tokenizer are for single stages: in a whole run each stage reads the one before"
        )
    with spark_session(config, "run") as spark:
        return [count(spark, config), train(config), encode(spark, config)]


def places(config: JobConfig) -> dict[str, str]:
    """Where the results of a whole run lie."""
    return {
        "word table": storage.absolute(config.words_path),
        "tokenizer": storage.absolute(config.tokenizer_path),
        "shards": storage.absolute(config.shards_path),
    }
