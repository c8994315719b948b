"""The shard formats by name."""

from shardpiece.errors import ConfigError
from shardpiece.shards.formats.arrow import ArrowFormat
from shardpiece.shards.formats.base import Format
from shardpiece.shards.formats.datatrove import DatatroveFormat
from shardpiece.shards.formats.dolma import DolmaFormat
from shardpiece.shards.formats.flat import BinFormat, LlmCFormat, NpyFormat
from shardpiece.shards.formats.litdata import LitdataFormat
from shardpiece.shards.formats.mds import MdsFormat
from shardpiece.shards.formats.megatron import MegatronFormat
from shardpiece.shards.formats.parquet import ParquetFormat

FORMATS: dict[str, Format] = {
    made.name: made
    for made in (
        ParquetFormat(),
        ArrowFormat(),
        BinFormat(),
        LlmCFormat(),
        NpyFormat(),
        MegatronFormat(),
        DatatroveFormat(),
        DolmaFormat(),
        MdsFormat(),
        LitdataFormat(),
    )
}


def get(name: str) -> Format:
    """Raises ConfigError naming the formats there are."""
    if name not in FORMATS:
        raise ConfigError(f"unknown shard format {name!r}; known: {', '.join(FORMATS)}")
    return FORMATS[name]
