"""Every shard format: its bytes as the layouts have them, written out by hand; rows written and read back; its limits."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardpiece import storage
from shardpiece.corpus.order import Validation
from shardpiece.errors import ConfigError, OutputError
from shardpiece.shards import formats
from shardpiece.shards.builder import ShardBuilder, ShardLayout, finish_formats
from shardpiece.shards.formats import columns, litdata, mds, megatron, parts
from shardpiece.shards.formats.base import Pieces, ShardSpec, TokenBatch
from shardpiece.shards.formats.datatrove import for_people
from shardpiece.shards.manifest import files_of
from shardpiece.shards.packing import Packing
from shardpiece.shards.readers import iter_rows
from shardpiece.shards.verify import check_beside

ALL = list(formats.FORMATS)
DOCUMENTS = [[1, 2, 3], [], [258], [4, 0], []]
IDS = ["a", 'b,"c"\n', None, "é", ""]


def u16(*values: int) -> bytes:
    return b"".join(value.to_bytes(2, "little") for value in values)


def u32(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def u64(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


def documents(rows=DOCUMENTS, ids=IDS, metadata=None, dtype=np.uint16, size=3):
    """Batches of ``size`` documents."""
    for a in range(0, len(rows), size):
        part = rows[a : a + size]
        tokens = np.array([token for row in part for token in row], dtype)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in part])]).astype(np.int64)
        carried = None if metadata is None else metadata.slice(a, size)
        yield TokenBatch(tokens, offsets, pa.array(ids[a : a + size], pa.string()), carried)


# Rows of four tokens: two documents and no padding; one and padding; one that goes on; its end and padding.
PACKED = [[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 10], [11, 12, 0, 0]]
PIECE_ENDS = [[1, 4], [2], [4], [1, 2]]
PIECE_IDS = ["a", "b", None, "d", "d", "e"]


def packed(dtype=np.uint16, size=3, rows=PACKED):
    done = 0
    for a in range(0, len(rows), size):
        ends = PIECE_ENDS[a : a + size]
        counts = np.concatenate([[0], np.cumsum([len(row) for row in ends])]).astype(np.int64)
        ids = PIECE_IDS[done : done + counts[-1]]
        done += counts[-1]
        pieces = Pieces(counts, np.array([end for row in ends for end in row], np.int64), pa.array(ids, pa.string()))
        [batch] = documents(rows[a : a + size], [None] * size, dtype=dtype, size=size)
        yield replace(batch, ids=None, pieces=pieces)


def write(directory, name, spec, batches, shard="shard-00000"):
    """The shard's entry as ``finish`` and readers get it."""
    format = formats.get(name)
    format.check(spec)
    before = set(directory.iterdir())
    writer = format.open(str(directory), shard, spec)
    try:
        for batch in batches:
            writer.write(batch)
        assert all(path in before or path.suffix == ".tmp" for path in directory.iterdir()), "visible before close"
        written = writer.close()
    except BaseException:
        writer.discard()
        raise
    return {"name": shard, "files": [file.as_dict() for file in written.files], "extra": written.extra}


def read(directory, name, spec, shard):
    return list(formats.get(name).read(str(directory), shard["files"], spec))


def names(directory):
    return sorted(path.name for path in directory.iterdir())


SPEC = ShardSpec(300, tokenizer="f00d")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("vocab_size", [300, 65536, 70000])
def test_documents_come_back(tmp_path, name, vocab_size):
    spec = replace(SPEC, vocab_size=vocab_size)
    rows = [*DOCUMENTS, [vocab_size - 1]]
    if name == "llm.c" and vocab_size > 65536:
        with pytest.raises(ConfigError, match="llm.c has uint16 ids alone"):
            formats.get(name).dtype(vocab_size)
        return
    shard = write(tmp_path, name, spec, documents(rows, [*IDS, "z"], dtype=np.uint32))
    found = read(tmp_path, name, spec, shard)
    assert [row.tokens.tolist() for row in found] == rows
    assert all(row.piece_ends is None for row in found)
    if "ids" in formats.get(name).carries:
        expected = [id or None for id in IDS] if name == "dolma" else IDS
        assert [row.id for row in found] == [*expected, "z"]
    assert names(tmp_path) == sorted(file["name"] for file in shard["files"])
    for file in shard["files"]:
        path = tmp_path / file["name"]
        assert (file["bytes"], file["checksum"], file["format"]) == (
            path.stat().st_size, storage.checksum(str(path)), name,
        )  # fmt: skip


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("length", [4, None])
def test_packed_rows_come_back_with_their_documents(tmp_path, name, length):
    spec = replace(SPEC, sequence_length=length, packed=True)
    rows = PACKED if length else [*PACKED[:3], [11, 12, 0, 0, 0, 0]]
    shard = write(tmp_path, name, spec, packed(rows=rows))
    found = read(tmp_path, name, spec, shard)
    assert [row.tokens.tolist() for row in found] == rows
    assert [row.piece_ends.tolist() for row in found] == PIECE_ENDS


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("packs", [False, True])
def test_bytes_do_not_depend_on_batches(tmp_path, name, packs, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 260)
    spec = replace(SPEC, sequence_length=4 if packs else None, packed=packs)
    made = packed if packs else documents
    found = [
        [(file["name"], file["checksum"]) for file in write(directory, name, spec, made(size=size))["files"]]
        for size in (1, 2, 5)
        if (directory := tmp_path / str(size)).mkdir() is None
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("packs", [False, True])
def test_a_shard_without_rows(tmp_path, name, packs):
    spec = replace(SPEC, sequence_length=4 if packs else None, packed=packs)
    shard = write(tmp_path, name, spec, [])
    assert read(tmp_path, name, spec, shard) == []
    files = formats.get(name).finish(str(tmp_path), [shard], spec)
    assert {file.name for file in files} == set(formats.get(name).extras)


@pytest.mark.parametrize("name", ALL)
def test_a_shard_without_tokens(tmp_path, name):
    shard = write(tmp_path, name, SPEC, documents([[], []], ["a", "b"]))
    assert [row.tokens.tolist() for row in read(tmp_path, name, SPEC, shard)] == [[], []]


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_left_of_a_shard_that_is_given_up(tmp_path, name):
    writer = formats.get(name).open(str(tmp_path), "shard-00000", SPEC)
    writer.write(next(documents()))
    writer.discard()
    assert names(tmp_path) == []
    writer = formats.get(name).open(str(tmp_path), "shard-00000", SPEC)
    writer.write(next(documents()))
    done = writer.close()
    writer.discard()
    assert names(tmp_path) == sorted(file.name for file in done.files)


@pytest.mark.parametrize("name", ALL)
def test_files_have_the_names_that_clean_up_knows(tmp_path, name):
    import re

    format = formats.get(name)
    spec = replace(SPEC, sequence_length=4, packed=True)
    shard = write(tmp_path, name, spec, packed())
    format.finish(str(tmp_path), [shard], spec)
    known = "|".join([rf"shard-\d{{5,}}(?:\.\d{{3,}})?(?:{'|'.join(format.suffixes)})", *map(re.escape, format.extras)])
    assert [found for found in names(tmp_path) if not re.fullmatch(known, found)] == []


def test_megatron_bytes(tmp_path):
    write(tmp_path, "megatron", SPEC, documents())
    assert (tmp_path / "shard-00000.bin").read_bytes() == u16(1, 2, 3, 258, 4, 0)
    assert (tmp_path / "shard-00000.idx").read_bytes() == (
        b"MMIDIDX\0\0" + u64(1) + b"\x08" + u64(5, 6)
        + u32(3, 0, 1, 2, 0)
        + u64(0, 6, 6, 8, 12)
        + u64(0, 1, 2, 3, 4, 5)
    )  # fmt: skip
    assert formats.get("megatron").dtype(65499) == np.dtype("<u2")
    assert formats.get("megatron").dtype(65500) == np.dtype("<i4")
    write(tmp_path, "megatron", replace(SPEC, vocab_size=65500), documents([[65499]], ["a"]))
    assert (tmp_path / "shard-00000.bin").read_bytes() == u32(65499)
    assert (tmp_path / "shard-00000.idx").read_bytes()[17] == 4
    # A file of no bytes cannot be mapped.
    write(tmp_path, "megatron", SPEC, documents([[]], ["a"]))
    assert (tmp_path / "shard-00000.bin").read_bytes() == u16(0)


def test_the_megatron_index_is_written_in_blocks(tmp_path, monkeypatch):
    write(tmp_path, "megatron", SPEC, documents())
    whole = (tmp_path / "shard-00000.idx").read_bytes()
    for block in (1, 2, 3):
        monkeypatch.setattr(megatron, "_BLOCK", block)
        write(tmp_path, "megatron", SPEC, documents(), f"shard-{block:05}")
        assert (tmp_path / f"shard-{block:05}.idx").read_bytes() == whole


def test_pieces_of_packed_rows(tmp_path):
    spec = replace(SPEC, sequence_length=4, packed=True)
    for name in ("megatron", "bin", "llm.c", "npy", "litdata", "datatrove"):
        write(tmp_path, name, spec, packed())
        pieces = np.load(tmp_path / "shard-00000.pieces.npy")
        assert (pieces.dtype, pieces.tolist()) == (np.int64, [[0, 1], [1, 4], [4, 6], [8, 12], [12, 13], [13, 14]])


def test_datatrove_bytes(tmp_path):
    write(tmp_path, "datatrove", SPEC, documents())
    assert names(tmp_path) == ["shard-00000.ds", "shard-00000.ds.index", "shard-00000.ds.metadata"]
    assert (tmp_path / "shard-00000.ds").read_bytes() == u16(1, 2, 3, 258, 4, 0)
    assert (tmp_path / "shard-00000.ds.index").read_bytes() == u64(3, 3, 4, 6, 6)
    assert (tmp_path / "shard-00000.ds.metadata").read_bytes() == b"f00d|2\n6\n6.00 T"
    write(tmp_path, "datatrove", replace(SPEC, vocab_size=65536), documents())
    assert (tmp_path / "shard-00000.ds").read_bytes() == u32(1, 2, 3, 258, 4, 0)
    assert (tmp_path / "shard-00000.ds.metadata").read_bytes() == b"f00d|4\n6\n6.00 T"
    write(tmp_path, "datatrove", replace(SPEC, sequence_length=4, packed=True), packed())
    assert (tmp_path / "shard-00000.ds.index").read_bytes() == u64(1, 4, 6, 8, 12, 13, 14, 16)


def test_tokens_for_people_as_humanize_writes_them():
    humanize = pytest.importorskip("humanize")
    for number in (0, 1, 12, 999, 1000, 1234, 99_999, 999_999, 1_000_000, 12_345_678, 10**12, 123_456 * 10**10):
        assert for_people(number) == humanize.metric(number, unit="T")


def test_dolma_bytes(tmp_path):
    write(tmp_path, "dolma", SPEC, documents())
    assert (tmp_path / "shard-00000.npy").read_bytes() == u16(1, 2, 3, 258, 4, 0)
    raw = (tmp_path / "shard-00000.csv.gz").read_bytes()
    assert raw[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no time, no name
    assert gzip.decompress(raw).decode() == (
        "0,3,a,shard-00000,1\r\n"
        '3,3,"b,""c""\n",shard-00000,2\r\n'
        "3,4,,shard-00000,3\r\n"
        "4,6,é,shard-00000,4\r\n"
        "6,6,,shard-00000,5\r\n"
    )
    write(tmp_path, "dolma", replace(SPEC, sequence_length=4, packed=True), packed())
    lines = gzip.decompress((tmp_path / "shard-00000.csv.gz").read_bytes()).decode().split("\r\n")
    assert lines[:4] == ["0,1,a,shard-00000,1", "1,4,b,shard-00000,1", "4,6,,shard-00000,2", "8,12,d,shard-00000,3"]


def test_mds_bytes_of_documents(tmp_path):
    shard = write(tmp_path, "mds", SPEC, documents(DOCUMENTS[:2], ["a", "bc"]))
    config = (
        b'{"column_encodings": ["json", "ndarray:uint16"], "column_names": ["id", "tokens"], "column_sizes": [null, null], '
        b'"compression": null, "format": "mds", "hashes": ["xxh3_64"], "size_limit": 67108864, "version": 2}'
    )
    first = u32(3, 8) + b'"a"' + b"\x04\x03" + u16(1, 2, 3)
    second = u32(4, 2) + b'"bc"' + b"\x04\x00"
    start = 4 + 4 * 3 + len(config)
    whole = u32(2) + u32(start, start + len(first), start + len(first) + len(second)) + config + first + second
    assert names(tmp_path) == ["shard-00000.000.mds"]
    assert (tmp_path / "shard-00000.000.mds").read_bytes() == whole
    [file] = formats.get("mds").finish(str(tmp_path), [shard], SPEC)
    assert (file.name, file.bytes) == ("index.json", (tmp_path / "index.json").stat().st_size)
    assert json.loads((tmp_path / "index.json").read_text()) == {
        "version": 2,
        "shards": [
            json.loads(config)
            | {
                "raw_data": {
                    "basename": "shard-00000.000.mds",
                    "bytes": len(whole),
                    "hashes": {"xxh3_64": storage.checksum_bytes(whole)[5:]},
                },
                "samples": 2,
                "zip_data": None,
            }
        ],
    }


def test_mds_bytes_of_packed_rows(tmp_path):
    spec = replace(SPEC, sequence_length=4, packed=True)
    write(tmp_path, "mds", spec, packed())
    raw = (tmp_path / "shard-00000.000.mds").read_bytes()
    config = json.loads(raw[24 : raw.index(b"}") + 1])
    assert config["column_names"] == ["doc_ids", "doc_lengths", "tokens"]
    assert config["column_encodings"] == ["json", "ndarray:int32", "ndarray:uint16:4"]
    assert config["column_sizes"] == [None, None, 8]
    assert raw[raw.index(b"}") + 1 :].startswith(
        u32(10, 10) + b'["a", "b"]' + b"\x04\x02" + u32(1, 3) + u16(1, 2, 3, 4) + u32(6, 6)
    )


def test_litdata_bytes(tmp_path):
    shard = write(tmp_path, "litdata", SPEC, documents())
    assert names(tmp_path) == ["shard-00000.000.bin"]
    assert (tmp_path / "shard-00000.000.bin").read_bytes() == (
        u32(5, 28, 34, 34, 36, 40, 40) + u16(1, 2, 3, 258, 4, 0)
    )  # fmt: skip
    empty = write(tmp_path, "litdata", SPEC, documents([[]], ["a"]), "shard-00001")
    formats.get("litdata").finish(str(tmp_path), [shard, empty], SPEC)
    assert json.loads((tmp_path / "index.json").read_text()) == {
        "chunks": [{"chunk_bytes": 40, "chunk_size": 5, "dim": 6, "filename": "shard-00000.000.bin"}],
        "config": {
            "chunk_bytes": 1 << 26, "chunk_size": None, "compression": None, "data_format": ["no_header_tensor:20"],
            "data_spec": litdata._ONE_LEAF, "encryption": None, "item_loader": "TokensLoader",
        },
    }  # fmt: skip
    formats.get("litdata").finish(str(tmp_path), [], replace(SPEC, vocab_size=65537))
    assert json.loads((tmp_path / "index.json").read_text())["config"]["data_format"] == ["no_header_tensor:16"]


def test_llm_c_bytes(tmp_path):
    shard = write(tmp_path, "llm.c", SPEC, documents())
    assert (tmp_path / "shard-00000.bin").read_bytes() == (
        u32(20240520, 1, 6) + bytes(1024 - 12) + u16(1, 2, 3, 258, 4, 0)
    )  # fmt: skip
    assert np.load(tmp_path / "shard-00000.ends.npy").tolist() == [3, 3, 4, 6, 6]
    (tmp_path / "shard-00000.bin").write_bytes(bytes(2000))
    with pytest.raises(ValueError, match=r"begins with \[0, 0, 0\]"):
        read(tmp_path, "llm.c", SPEC, shard)


def test_npy_is_what_numpy_opens(tmp_path):
    write(tmp_path, "npy", SPEC, documents())
    assert (tmp_path / "shard-00000.npy").read_bytes()[:8] == b"\x93NUMPY\x01\x00"
    found = np.load(tmp_path / "shard-00000.npy", mmap_mode="r")
    assert (found.dtype, found.tolist()) == (np.uint16, [1, 2, 3, 258, 4, 0])
    write(tmp_path, "npy", replace(SPEC, sequence_length=4, packed=True), packed())
    assert np.load(tmp_path / "shard-00000.npy").tolist() == PACKED


METADATA = pa.record_batch(
    {
        "lang": ["en", None, "de", "fr", ""],
        "n": pa.array([1, 2, None, 4, 5], pa.int32()),
        "tags": [["x"], [], None, [], []],
    }
)


def test_tables_have_what_was_carried(tmp_path):
    spec = replace(SPEC, metadata=METADATA.schema)
    made = list(documents(metadata=METADATA))
    write(tmp_path, "parquet", spec, made)
    expected = [
        {"id": id, "tokens": tokens, "n_tokens": len(tokens), **carried}
        for id, tokens, carried in zip(IDS, DOCUMENTS, METADATA.to_pylist(), strict=True)
    ]
    assert pq.read_table(tmp_path / "shard-00000.parquet").to_pylist() == expected
    write(tmp_path, "arrow", spec, made)
    for row in expected:
        row["input_ids"] = row.pop("tokens")
        del row["n_tokens"]
    with pa.ipc.open_stream(tmp_path / "shard-00000.arrow") as stream:
        assert stream.read_all().to_pylist() == expected


@pytest.mark.parametrize(("name", "tokens"), [("parquet", "tokens"), ("arrow", "input_ids")])
def test_tables_of_packed_rows(tmp_path, name, tokens):
    spec = replace(SPEC, sequence_length=4, packed=True)
    write(tmp_path, name, spec, packed())
    if name == "parquet":
        table = pq.read_table(tmp_path / "shard-00000.parquet")
    else:
        table = pa.ipc.open_stream((tmp_path / "shard-00000.arrow").read_bytes()).read_all()
    assert table[tokens].to_pylist() == PACKED
    assert table["doc_ids"].to_pylist() == [["a", "b"], [None], ["d"], ["d", "e"]]
    assert table["doc_lengths"].to_pylist() == [[1, 3], [2], [4], [1, 1]]
    assert "id" not in table.schema.names


def test_what_metadata_cannot_be_carried(tmp_path):
    spec = replace(SPEC, metadata=pa.schema([("when", pa.timestamp("us"))]))
    with pytest.raises(ConfigError, match="mds has no place for 'when', which is timestamp"):
        formats.get("mds").check(spec)
    formats.get("parquet").check(spec)
    for name, column in (("mds", "tokens"), ("parquet", "n_tokens"), ("arrow", "input_ids")):
        with pytest.raises(ConfigError, match=f"{name} has a column '{column}' of its own"):
            formats.get(name).check(replace(SPEC, metadata=pa.schema([(column, pa.string())])))
        with pytest.raises(ConfigError, match="packed rows, of several documents"):
            formats.get(name).check(replace(SPEC, packed=True, metadata=METADATA.schema))


@pytest.mark.parametrize("name", ["mds", "litdata"])
def test_files_with_offsets_are_cut_into_parts(tmp_path, name, monkeypatch):
    rows = [[i] * (i % 7) for i in range(40)]
    ids = [f"d{i}" for i in range(40)]
    overhead = len(json.dumps(mds._config(mds._columns(SPEC)))) if name == "mds" else 0
    monkeypatch.setattr(parts, "PART_BYTES", overhead + 100)
    shard = write(tmp_path, name, SPEC, documents(rows, ids))
    sizes = [file["bytes"] for file in shard["files"]]
    assert len(sizes) > 3
    assert max(sizes) <= overhead + 100
    assert [file["name"] for file in shard["files"]] == [
        f"shard-00000.{i:03}.{'mds' if name == 'mds' else 'bin'}" for i in range(len(sizes))
    ]
    assert [row.tokens.tolist() for row in read(tmp_path, name, SPEC, shard)] == rows
    formats.get(name).finish(str(tmp_path), [shard], SPEC)
    index = json.loads((tmp_path / "index.json").read_text())
    if name == "mds":
        assert sum(part["samples"] for part in index["shards"]) == 40
    else:
        assert sum(part["dim"] for part in index["chunks"]) == sum(map(len, rows))
    # A row that is larger than a part is a part of its own; beyond 32 bits it is refused.
    shard = write(tmp_path, name, SPEC, documents([[1], [2] * 400, [3]], ["a", "b", "c"]), "shard-00001")
    assert [part["rows"] for part in shard["extra"]["parts"]] == [1, 1, 1]
    assert [len(row.tokens) for row in read(tmp_path, name, SPEC, shard)] == [1, 400, 1]
    monkeypatch.setattr(parts, "_MOST_BYTES", 400)
    with pytest.raises(OutputError, match=f"{name} has files of at most 4 GiB, and one document of 400 tokens"):
        write(tmp_path, name, SPEC, documents([[1], [2] * 400, [3]], ["a", "b", "c"]), "shard-00002")
    assert not list(tmp_path.glob("shard-00002*"))


def test_lengths_beyond_32_bits_are_refused(tmp_path, monkeypatch):
    for module, name, message in (
        (megatron, "megatron", "sequences of 2,147,483,647 tokens at most, and one has 3"),
        (columns, "parquet", "a list has 2,147,483,647 tokens at most, and a document has 3"),
        (formats.flat, "llm.c", "counts the tokens of a shard in 32 bits, and this one has 6"),
    ):
        monkeypatch.setattr(module, "_MOST_TOKENS" if module is megatron else "_INT32_MAX", 2)
        monkeypatch.setattr(columns, "_ALONE", 1)
        with pytest.raises(OutputError, match=message):
            write(tmp_path, name, SPEC, documents())
        assert names(tmp_path) == []


def test_table_batches_are_cut_by_rows_alone():
    rng = np.random.default_rng(5)
    rows = [[1] * int(n) for n in rng.integers(0, 60, 200)]
    found = []
    for size in (1, 7, 200):
        made: list[pa.RecordBatch] = []
        table = columns.TableRows(SPEC, "tokens", None, 300, made.append)
        for batch in documents(rows, [f"d{i}" for i in range(200)], size=size):
            table.add(batch)
        table.flush()
        found.append([len(batch) for batch in made])
        assert [row for batch in made for row in batch["tokens"].to_pylist()] == rows
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 10


def test_a_header_that_comes_last(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_HELD_BYTES", 10)
    file = storage.HeadedFile(str(tmp_path / "x"))
    for _ in range(5):
        file.write(b"12345")
    staged = file.seal(b"head")
    assert [path.suffix for path in tmp_path.iterdir()] == [".tmp"]
    staged.commit()
    assert (tmp_path / "x").read_bytes() == b"head" + b"12345" * 5
    assert (staged.size, staged.checksum) == (29, storage.checksum(str(tmp_path / "x")))
    full = storage.HeadedFile(str(tmp_path / "y"))
    monkeypatch.setattr(
        full._content, "write", lambda data: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(
        OutputError, match="y: the temporary file for it, in .* cannot be written .No space left on device"
    ):
        full.write(b"1")
    full.discard()
    assert names(tmp_path) == ["x"]


def test_every_format_in_one_pass_with_validation_and_packing(tmp_path):
    ids = [f"d{i}" for i in range(60)]
    rows = [[i] * (1 + i % 5) for i in range(60)]
    spec = replace(SPEC, sequence_length=8, packed=True)
    layout = ShardLayout(tuple(ALL), spec, Validation(0.3, seed=1), Packing("best_fit", 8, pad_id=0))
    builder = ShardBuilder(str(tmp_path), "shard-00000", layout)
    for batch in documents(rows, ids, size=9):
        builder.add(batch)
    shards = [builder.finish()]
    packing = {"long_documents": "split", "sequence_length": 8}
    manifest = {"formats": finish_formats(str(tmp_path), shards, layout), "vocab_size": 300, "tokenizer": "f00d",
                "shards": shards, "packing": packing}  # fmt: skip
    for split in ("train", "validation"):
        found = {
            name: [
                (row.tokens.tolist(), row.piece_ends.tolist())
                for row in iter_rows(str(tmp_path), manifest, name, split)
            ]
            for name in ALL
        }
        assert all(len(tokens) == 8 for tokens, _ in found["bin"])
        assert all(made == found["parquet"] for made in found.values())
    listed = {file["name"] for file in files_of(manifest)}
    assert listed == storage.tree(str(tmp_path)).keys()
    assert check_beside(str(tmp_path), manifest) == []
    assert {"mds/train/index.json", "mds/validation/index.json", "arrow/train/state.json"} <= listed


@pytest.mark.parametrize("name", ALL)
def test_shards_in_an_object_store(tmp_path, name):
    directory = f"memory://formats-{name}"
    writer = formats.get(name).open(directory, "shard-00000", SPEC)
    for batch in documents():
        writer.write(batch)
    files = [file.as_dict() for file in writer.close().files]
    assert storage.list_names(directory) == sorted(file["name"] for file in files)
    rows = formats.get(name).read(directory, files, SPEC)
    assert [row.tokens.tolist() for row in rows] == DOCUMENTS


def test_dolma_reads_the_ids_it_writes(tmp_path):
    long = "i" * 200_000
    layout = ShardLayout(("dolma",), ShardSpec(300))
    builder = ShardBuilder(str(tmp_path), "shard-00000", layout)
    builder.add(TokenBatch(np.array([1, 2], np.uint16), np.array([0, 2]), pa.array([long])))
    entry = builder.finish()
    [row] = formats.get("dolma").read(str(tmp_path), entry["files"], layout.spec)
    assert row.id == long
