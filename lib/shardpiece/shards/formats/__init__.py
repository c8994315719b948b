"""The shard formats by name."""

from shardpiece.errors import ConfigError
from shardpiece.shards.formats.base import Format
from shardpiece.shards.formats.flat import BinFormat
from shardpiece.shards.formats.parquet import ParquetFormat

FORMATS: dict[str, Format] = {made.name: made for made in (ParquetFormat(), BinFormat())}


def get(name: str) -> Format:
    """Raises ConfigError naming the formats there are."""
    if name not in FORMATS:
        raise ConfigError(f"unknown shard format {name!r}; known: {', '.join(FORMATS)}")
    return FORMATS[name]
