"""What shardpiece clean takes away, and what it never touches."""

import json
import time
from dataclasses import asdict, replace

import pytest

from shardpiece import lock, storage
from shardpiece.errors import OutputError
from shardpiece.pipeline.clean import clean
from shardpiece.pipeline.encode.task import OUTPUT
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import ShardBuilder, ShardLayout, finish_formats
from shardpiece.shards.formats.base import ShardSpec
from tests.shards.test_shards import batches

LAYOUT = ShardLayout(("bin",), ShardSpec(65536, "t"))


def shard(directory, number: int, key: str) -> dict:
    builder = ShardBuilder(str(directory), f"shard-{number:05}", LAYOUT)
    for batch in batches():
        builder.add(batch)
    entry = {"key": key, **dict.fromkeys(manifests._ENTRY_KEYS, 0), **builder.finish(), "sources": []}
    manifests.write_journal_entry(str(directory), entry, builder.statistics)
    return entry


def finished(directory, *entries):
    manifest = {
        "format": manifests.FORMAT, "version": manifests.VERSION, "key": "k", "tokenizer": "t", "vocab_size": 65536,
        "formats": finish_formats(str(directory), list(entries), LAYOUT), "around": {"before": [], "after": []},
        "totals": {}, "settings": {}, "input": [], "increments": [], "statistics": [], "shards": list(entries),
    }  # fmt: skip
    (directory / "manifest.json").write_bytes(storage.pretty_json(manifest))


def begun(directory, key: str):
    (directory / "_started.json").write_text(json.dumps({"writing": OUTPUT.what, "key": key}))


def put(directory, *names: str):
    for name in names:
        (directory / name).parent.mkdir(exist_ok=True, parents=True)
        (directory / name).write_bytes(b"x")


def test_what_the_manifest_does_not_list_goes(tmp_path):
    finished(tmp_path, shard(tmp_path, 0, "k"))
    before = storage.tree(str(tmp_path))
    orphans = ("shard-00001.bin", "bin/shard-00000.bin", "shard-00000.bin.0123456789ab.tmp", "manifest.json.0123456789ab.tmp",
               "_journal/shard-00007.json", "statistics/00004.parquet", ".shardpiece-0123456789ab")  # fmt: skip
    put(tmp_path, *orphans, "notes.txt", "mine/shard-00000.bin")
    for dry_run in (True, False):
        done = clean(str(tmp_path), dry_run=dry_run)
        assert done.removed == dict.fromkeys(sorted(orphans), 1)
        assert done.others == ["mine/shard-00000.bin", "notes.txt"]
        assert all((tmp_path / name).exists() for name in orphans) == dry_run
    assert storage.tree(str(tmp_path)) == before | {"notes.txt": 1, "mine/shard-00000.bin": 1}
    assert not (tmp_path / "bin").exists()
    assert clean(str(tmp_path)).removed == {}


def test_what_an_unfinished_run_has_done_stays_unless_told(tmp_path):
    shard(tmp_path, 0, "k")
    shard(tmp_path, 1, "of another plan")
    begun(tmp_path, "k")
    put(tmp_path, "shard-00002.bin")
    removed = clean(str(tmp_path))
    assert set(removed.removed) == {"shard-00001.bin", "shard-00001.ends.npy", "shard-00002.bin", "_journal/shard-00001.json",
                                    "_journal/shard-00001.statistics.parquet"}  # fmt: skip
    assert removed.unfinished == 4
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "k")
    assert clean(str(tmp_path), unfinished=True).unfinished == 0
    assert storage.tree(str(tmp_path)) == {}


def test_an_unfinished_increment_beside_what_is_finished(tmp_path):
    finished(tmp_path, shard(tmp_path, 0, "k"))
    before = storage.tree(str(tmp_path))
    shard(tmp_path, 1, "next")
    begun(tmp_path, "next")
    assert clean(str(tmp_path)).removed == {}
    assert "_started.json" in clean(str(tmp_path), unfinished=True).removed
    assert storage.tree(str(tmp_path)) == before


@pytest.mark.parametrize("foreign", [[], ["shard-00000.bin"], ["manifest.json"], ["_started.json"], ["words.json"]])
def test_directories_that_are_not_ours_are_left_alone(tmp_path, foreign):
    for name in foreign:
        (tmp_path / name).write_text('{"writing": "something"}')
    with pytest.raises(OutputError, match="[Nn]othing was removed"):
        clean(str(tmp_path), force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == foreign


def test_locks(tmp_path):
    finished(tmp_path, shard(tmp_path, 0, "k"))
    put(tmp_path, "shard-00001.bin")

    def hold(**changes):
        holder = replace(lock.Holder.this_process("encode"), **changes)
        (tmp_path / lock.LOCK).write_bytes(storage.pretty_json(asdict(holder)))

    hold(machine="elsewhere", host="node-7", heartbeat=time.time())
    with pytest.raises(OutputError, match="on node-7.* shardpiece clean .* --break-lock"):
        clean(str(tmp_path))
    assert "on node-7" in clean(str(tmp_path), dry_run=True, force=True).lock
    assert (tmp_path / lock.LOCK).exists()
    done = clean(str(tmp_path), force=True)
    assert "on node-7" in done.lock
    assert set(done.removed) == {"shard-00001.bin"}
    hold(process_started="1")
    assert "process" in clean(str(tmp_path)).lock
    assert not (tmp_path / lock.LOCK).exists()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / lock.LOCK).write_text("damaged")
    assert clean(str(tmp_path / "empty"), force=True).lock == "a damaged file"
    assert not (tmp_path / "empty").exists()
