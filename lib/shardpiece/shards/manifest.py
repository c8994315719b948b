"""The manifest of a shard directory, and the journal that a restart reads.

``manifest.json`` is written last and is the only thing readers trust. It holds no time, host or path of the run, so
that the same input and configuration give the same bytes. ``_journal/NAME.json`` records each finished shard with the
key of the plan it belongs to, ``_journal/NAME.statistics.parquet`` what was counted in it.
"""

from concurrent.futures import ThreadPoolExecutor

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.shards.formats.base import ShardSpec
from shardpiece.shards.statistics import DIRECTORY as STATISTICS
from shardpiece.shards.statistics import Statistics, read_statistics

MANIFEST = "manifest.json"
JOURNAL = "_journal"
FORMAT = "shardpiece-shards"
VERSION = 2


_ENTRY_KEYS = {
    "name", "files", "sources", "documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "tokens",
    "statistics",
}  # fmt: skip


def journal_path(directory: str, name: str) -> str:
    return storage.join(directory, JOURNAL, f"{name}.json")


def statistics_path(directory: str, name: str) -> str:
    return storage.join(directory, JOURNAL, f"{name}.statistics.parquet")


def write_journal_entry(directory: str, entry: dict, statistics: Statistics) -> None:
    """Record a finished shard; the entry gets the checksum of its statistics."""
    raw = statistics.to_bytes()
    entry["statistics"] = storage.checksum_bytes(raw)
    storage.write_bytes(statistics_path(directory, entry["name"]), raw)
    storage.write_bytes(journal_path(directory, entry["name"]), storage.pretty_json(entry))


def summed_statistics(directory: str, entries: list[dict], vocab_size: int) -> Statistics:
    """Of the shards of these journal entries together."""
    total = Statistics.empty(vocab_size)
    paths = [statistics_path(directory, entry["name"]) for entry in entries]
    with ThreadPoolExecutor(8) as pool:
        for first in range(0, len(paths), 64):  # a megabyte each, of which few are held at once
            for counted in pool.map(read_statistics, paths[first : first + 64]):
                total.merge(counted)
    return total


def write_statistics(directory: str, increment: int, statistics: Statistics) -> dict:
    """The statistics of a run's new shards as a file beside the shards; its entry for the manifest."""
    name = f"{STATISTICS}/{increment:05}.parquet"
    raw = statistics.to_bytes()
    storage.write_bytes(storage.join(directory, name), raw)
    return {"name": name, "bytes": len(raw), "checksum": storage.checksum_bytes(raw), "format": "statistics"}


def read_journal_entry(directory: str, name: str, key: str) -> dict | None:
    """What an earlier attempt recorded for this shard, if it was the same plan and its files are still as written."""
    path = journal_path(directory, name)
    if not storage.exists(path):
        return None
    try:
        entry = storage.read_json(path)
        if entry["key"] != key or not set(entry) >= _ENTRY_KEYS:
            return None
        for file in [*entry["files"], *entry.get("tails", [])]:
            if storage.checksum(storage.join(directory, file["name"])) != file["checksum"]:
                return None
        if storage.checksum(statistics_path(directory, name)) != entry["statistics"]:
            return None
    except (FormatError, FileNotFoundError, KeyError, TypeError):
        return None
    return entry


def around(manifest: dict) -> tuple[list[int], list[int]]:
    """The ids in front of and behind every document's text."""
    return manifest["around"].get("before"), manifest["around"].get("after")


def files_of(manifest: dict) -> list[dict]:
    """The entries of all files that a manifest lists."""
    own = [file for described in manifest["formats"].values() for file in described["files"]]
    return [*(file for shard in manifest["shards"] for file in shard["files"]), *own, *manifest.get("statistics", [])]


def spec_of(manifest: dict) -> ShardSpec:
    """What the formats have to know to read the shards."""
    packing = manifest.get("packing")
    length = None if packing is None or packing["long_documents"] == "keep" else packing["sequence_length"]
    return ShardSpec(manifest["vocab_size"], manifest["tokenizer"], length, packing is not None)


def read_manifest(directory: str) -> dict:
    """Raises FormatError when the directory holds no finished shards of a known version."""
    path = storage.join(directory, MANIFEST)
    if not storage.exists(path):
        raise FormatError(
            f"{directory}: no finished shards here ({MANIFEST} is missing). Make them with: shardpiece encode"
        )
    keys = {"key": str, "tokenizer": str, "vocab_size": int, "formats": dict, "around": dict, "totals": dict,
            "settings": dict, "input": list, "increments": list, "statistics": list, "shards": list}  # fmt: skip
    manifest = storage.read_manifest(path, FORMAT, VERSION, keys)
    ids = around(manifest)
    if not all(isinstance(part, list) and all(type(i) is int for i in part) for part in ids):
        raise FormatError(f"{path}: damaged ('around' holds what is no id)")
    for shard in manifest["shards"]:
        if not isinstance(shard, dict) or not {"name", "documents", "tokens", "files"} <= set(shard):
            raise FormatError(f"{path}: damaged ('shards' has an incomplete entry)")
    for name, described in manifest["formats"].items():
        if not isinstance(described, dict) or not isinstance(described.get("files"), list):
            raise FormatError(f"{path}: damaged ('formats' has an incomplete entry for {name})")
    for file in files_of(manifest):
        if not isinstance(file, dict) or not {"name", "bytes", "checksum", "format"} <= set(file):
            raise FormatError(f"{path}: damaged (a shard or format has an incomplete file)")
    return manifest
