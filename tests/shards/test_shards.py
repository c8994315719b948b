"""Shard files: layouts read with other eyes, limits checked, damage named."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardpiece import storage
from shardpiece.corpus.base import Split
from shardpiece.corpus.order import Validation
from shardpiece.errors import ConfigError, FormatError, OutputError, ShardpieceError
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import ShardBuilder, ShardLayout, finish_formats
from shardpiece.shards.formats.base import ShardSpec, TokenBatch, smallest_dtype
from shardpiece.shards.plan import plan_shards
from shardpiece.shards.readers import iter_rows
from shardpiece.shards.statistics import Statistics


def batches():
    yield TokenBatch(np.array([1, 2, 3], np.int32), np.array([0, 2, 3]), pa.array(["a", "b"]))
    yield TokenBatch(np.array([], np.int32), np.array([0, 0, 0]), pa.array(["c", None]))
    yield TokenBatch(np.array([65535, 0], np.int32), np.array([0, 2]), pa.array(["d"]))


DOCUMENTS = [[1, 2], [3], [], [], [65535, 0]]


def write(directory, shard_formats, vocab_size, batches) -> dict:
    """A shard directory's manifest, as far as readers look at it."""
    layout = ShardLayout(tuple(shard_formats), ShardSpec(vocab_size))
    builder = ShardBuilder(str(directory), "shard-00000", layout)
    try:
        for batch in batches:
            builder.add(batch)
        shards = [builder.finish()]
    except BaseException:
        builder.discard()
        raise
    described = finish_formats(str(directory), shards, layout)
    return {"formats": described, "vocab_size": vocab_size, "tokenizer": "", "shards": shards}


def test_parquet_layout(tmp_path):
    manifest = write(tmp_path, ["parquet"], 65536, batches())
    rows = pq.read_table(tmp_path / "shard-00000.parquet").to_pylist()
    assert [row["tokens"] for row in rows] == DOCUMENTS
    assert [row["n_tokens"] for row in rows] == [2, 1, 0, 0, 2]
    assert [row["id"] for row in rows] == ["a", "b", "c", None, "d"]
    read = [(row.id, row.tokens.tolist()) for row in iter_rows(str(tmp_path), manifest)]
    assert read == list(zip(["a", "b", "c", None, "d"], DOCUMENTS, strict=True))
    [file] = manifest["shards"][0]["files"]
    assert file["checksum"] == storage.checksum(str(tmp_path / "shard-00000.parquet"))
    assert file["bytes"] == (tmp_path / "shard-00000.parquet").stat().st_size


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65536, "<u2"), (65537, "<u4")])
def test_bin_layout(tmp_path, vocab_size, dtype):
    assert smallest_dtype(vocab_size) == np.dtype(dtype)
    manifest = write(tmp_path, ["bin"], vocab_size, batches())
    assert np.fromfile(tmp_path / "shard-00000.bin", dtype).tolist() == [1, 2, 3, 65535, 0]
    assert np.load(tmp_path / "shard-00000.ends.npy").tolist() == [2, 3, 3, 3, 5]
    assert [row.tokens.tolist() for row in iter_rows(str(tmp_path), manifest)] == DOCUMENTS


def test_several_formats_have_directories_of_their_names(tmp_path):
    manifest = write(tmp_path, ["bin", "parquet"], 65536, batches())
    assert sorted(storage.tree(str(tmp_path))) == [
        "bin/shard-00000.bin", "bin/shard-00000.ends.npy", "parquet/shard-00000.parquet",
    ]  # fmt: skip
    assert manifests.files_of(manifest) == manifest["shards"][0]["files"]
    for name in ("bin", "parquet"):
        assert [row.tokens.tolist() for row in iter_rows(str(tmp_path), manifest, name)] == DOCUMENTS
    assert [row.id for row in iter_rows(str(tmp_path), manifest)] == ["a", "b", "c", None, "d"]
    with pytest.raises(ConfigError, match="no shards of format 'npy' here; there are: bin, parquet"):
        list(iter_rows(str(tmp_path), manifest, "npy"))


def test_documents_are_set_apart_for_validation(tmp_path):
    ids = [f"d{i}" for i in range(40)]
    validation = Validation(0.25, seed=3)
    layout = ShardLayout(("bin", "parquet"), ShardSpec(100), validation)
    shards = []
    # The second shard has none for validation, the third none at all.
    chosen = dict(zip(ids, validation.chosen(pa.array(ids)).tolist(), strict=True))
    apart = [name for name in ids if chosen[name]]
    rest = [name for name in ids if not chosen[name]]
    parts = [ids[:30], rest[-5:], []]
    for number, part in enumerate(parts):
        builder = ShardBuilder(str(tmp_path), f"shard-{number:05}", layout)
        for first in range(0, len(part), 7):
            names = part[first : first + 7]
            numbers = np.array([ids.index(name) for name in names], np.uint16)
            builder.add(TokenBatch(np.repeat(numbers, 2), np.arange(len(names) + 1) * 2, pa.array(names)))
        shards.append(builder.finish())
    described = finish_formats(str(tmp_path), shards, layout)
    manifest = {"formats": described, "vocab_size": 100, "tokenizer": "", "shards": shards}
    assert sorted(storage.tree(str(tmp_path))) == sorted(
        f"{format}/{split}/{name}"
        for format, suffixes in (("bin", (".bin", ".ends.npy")), ("parquet", (".parquet",)))
        for split, name in [
            (split, shard + suffix)
            for suffix in suffixes
            for split, shard in (("train", "shard-00000"), ("train", "shard-00001"), ("validation", "shard-00000"))
        ]
    )
    assert shards[0]["splits"].keys() == {"train", "validation"}
    assert (shards[1]["splits"].keys(), shards[2]["splits"], shards[2]["files"]) == ({"train"}, {}, [])
    assert {file["split"] for file in shards[1]["files"]} == {"train"}
    assert shards[0]["documents"] == 30
    for split, mine in (("train", rest), ("validation", apart)):
        got = [row.id for row in iter_rows(str(tmp_path), manifest, "parquet", split)]
        assert got == [name for part in parts for name in part if name in mine]
        assert got
        rows = [row.tokens.tolist() for row in iter_rows(str(tmp_path), manifest, "bin", split)]
        assert rows == [[ids.index(name)] * 2 for name in got]
    assert len(list(iter_rows(str(tmp_path), manifest))) == 35
    with pytest.raises(ConfigError, match="no documents were set apart here"):
        list(iter_rows(str(tmp_path / "x"), write(tmp_path / "x", ["bin"], 100, []), split="train"))


@pytest.mark.parametrize("shard_format", ["parquet", "bin"])
def test_an_id_beyond_the_vocabulary_is_never_written(tmp_path, shard_format):
    with pytest.raises(ShardpieceError, match="outside the vocabulary"):
        write(tmp_path, [shard_format], 65535, batches())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shard_format", ["parquet", "bin"])
def test_an_empty_shard_is_a_valid_file(tmp_path, shard_format):
    manifest = write(tmp_path, [shard_format], 300, [])
    assert list(iter_rows(str(tmp_path), manifest)) == []


def test_damage_is_named(tmp_path):
    manifest = write(tmp_path, ["bin"], 300, [next(batches())])
    manifest["shards"][0]["documents"] = 5
    with pytest.raises(FormatError, match="2 documents, the manifest says 5"):
        list(iter_rows(str(tmp_path), manifest))
    (tmp_path / "shard-00000.bin").write_bytes(b"\x01\x00")
    with pytest.raises(FormatError, match=r"shard-00000\.bin .* it was changed"):
        list(iter_rows(str(tmp_path), manifest))
    (tmp_path / "shard-00000.bin").unlink()
    with pytest.raises(FormatError, match="shard-00000: cannot be read"):
        list(iter_rows(str(tmp_path), manifest))
    with pytest.raises(FormatError, match="unknown shard format"):
        list(iter_rows(str(tmp_path), manifest | {"formats": {"tar": {"files": []}}}))
    with pytest.raises(FormatError, match="no finished shards here"):
        manifests.read_manifest(str(tmp_path))


def test_plan_is_a_function_of_splits_and_size():
    splits = [Split("f", i, 0, i, 1, 60) for i in range(5)]
    plan = plan_shards(splits, 120)
    assert [shard.name for shard in plan] == ["shard-00000", "shard-00001", "shard-00002"]
    assert [len(shard.splits) for shard in plan] == [2, 2, 1]
    assert plan[0].rows == 2
    assert plan_shards([], 10) == []


def test_a_failed_write_leaves_nothing(tmp_path):
    def fail(file):
        file.write(b"half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        storage.write_file(str(tmp_path / "x.bin"), fail)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written"):
        storage.write_bytes(str(tmp_path / "file" / "below"), b"x")
    with pytest.raises(OutputError, match="Choose another --output"):
        storage.check_writable(str(tmp_path / "file" / "below"))
    storage.check_writable(str(tmp_path / "not" / "yet"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_journal_entries_count_only_while_they_hold(tmp_path):
    files = write(tmp_path, ["bin"], 300, [next(batches())])["shards"][0]["files"]
    counts = ("documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "tokens")
    entry = {"name": "shard-00000", "key": "k", "files": files, "sources": []}
    entry |= dict.fromkeys(counts, 0)
    path = manifests.journal_path(str(tmp_path), "shard-00000")
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "k") is None
    manifests.write_journal_entry(str(tmp_path), entry, Statistics.empty(300))
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "k") == entry
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "other") is None
    counted = tmp_path / "_journal" / "shard-00000.statistics.parquet"
    raw = counted.read_bytes()
    counted.write_bytes(raw[:-1])
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "k") is None
    counted.write_bytes(raw)
    (tmp_path / "shard-00000.bin").write_bytes(b"changed")
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "k") is None
    (tmp_path / "shard-00000.bin").unlink()
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "k") is None
    storage.write_bytes(path, storage.pretty_json({key: entry[key] for key in ("key", "files")}))
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "k") is None
    storage.write_bytes(path, b"half a jour")
    assert manifests.read_journal_entry(str(tmp_path), "shard-00000", "k") is None
