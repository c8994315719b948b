"""Reading shards back, row by row, as the manifest lists them."""

from collections.abc import Iterator

import pyarrow as pa

from shardpiece import storage
from shardpiece.errors import ConfigError, FormatError
from shardpiece.shards import formats
from shardpiece.shards.formats.base import Row
from shardpiece.shards.manifest import spec_of


def iter_rows(directory: str, manifest: dict, format: str | None = None, split: str | None = None) -> Iterator[Row]:
    """Every row in order, a document or a packed sequence; of several formats from the named one, else from the one that
    holds most. ``split``: "train" or "validation" where documents were set apart; None for both, shard by shard.

    Raises FormatError naming a file that is missing, truncated or does not hold what the manifest says, and ConfigError
    for a format that is not among the manifest's.
    """
    known = manifest["formats"]
    if format is None:
        if unknown := set(known) - set(formats.FORMATS):
            raise FormatError(f"{directory}: unknown shard format {min(unknown)!r}")
        format = max(known, key=lambda name: len(formats.get(name).carries), default=None)
    if format not in known:
        raise ConfigError(f"{directory}: no shards of format {format!r} here; there are: {', '.join(known) or 'none'}")
    for shard in manifest["shards"]:
        yield from shard_rows(directory, manifest, shard, format, split)


def shard_rows(directory: str, manifest: dict, shard: dict, format: str, split: str | None = None) -> Iterator[Row]:
    """The rows of one shard. Raises as ``iter_rows``."""
    if "splits" in shard:
        for name, side in shard["splits"].items():
            if split in (None, name):
                yield from _side_rows(directory, manifest, {**shard, **side}, format, name)
    elif split is not None:
        raise ConfigError(f"{directory}: no documents were set apart here, there is no {split!r}")
    else:
        yield from _side_rows(directory, manifest, shard, format, "")


def _side_rows(directory: str, manifest: dict, shard: dict, format: str, split: str) -> Iterator[Row]:
    read = formats.get(format).read
    count = 0
    files = [file for file in shard["files"] if file["format"] == format and file.get("split", "") == split]
    try:
        _verify(directory, files)
        for row in read(directory, files, spec_of(manifest)):
            yield row
            count += 1
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FormatError(f"{directory}, shard {shard['name']}: cannot be read ({error})") from None
    expected = shard.get("rows", shard["documents"])
    if count != expected:
        what = "rows" if "rows" in shard else "documents"
        raise FormatError(f"{directory}, shard {shard['name']}: {count} {what}, the manifest says {expected}")


def _verify(directory: str, files: list[dict]) -> None:
    """Raises ValueError when a file is not the one that was written."""
    for file in files:
        if storage.checksum(storage.join(directory, file["name"])) != file["checksum"]:
            raise ValueError(f"{file['name']} is not what the manifest's checksum was taken of: it was changed")
