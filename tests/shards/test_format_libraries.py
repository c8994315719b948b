"""Shards opened by the libraries they are for. datasets and datatrove are among the development dependencies, the others are
not: they need torch, or versions of other packages that this library does not go with. Their tests are slow ones; each line
here is an environment that pytest, numba, regex, pyarrow, fsspec and xxhash are installed into as well:

    megatron-core litdata datatrove ai2-olmo-core torch
    mosaicml-streaming torch torchvision
    dolma
"""

import csv
import gzip
import os

import numpy as np
import pyarrow as pa
import pytest

from shardpiece.shards import formats
from shardpiece.shards.formats.base import Pieces, ShardSpec, TokenBatch

SPEC = ShardSpec(40000, tokenizer="f00d")
LARGE = ShardSpec(100_000, tokenizer="f00d")
PACKED = ShardSpec(40000, tokenizer="f00d", sequence_length=16, packed=True)
SPECS = pytest.mark.parametrize("spec", [SPEC, LARGE, PACKED], ids=["uint16", "larger", "packed"])


def rows_of(spec, seed) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    if spec.packed:
        return rng.integers(0, spec.vocab_size, (25, spec.sequence_length)).tolist()
    return [rng.integers(0, spec.vocab_size, n).tolist() for n in [0, *rng.integers(0, 50, 40), 0]]


def batch_of(spec, rows, shard) -> TokenBatch:
    tokens = np.array([token for row in rows for token in row], np.uint32)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    ids = pa.array([f"{shard}/{i}" for i in range(len(rows))])
    if not spec.packed:
        return TokenBatch(tokens, offsets, ids)
    # Two documents in each row, of 5 and 7 tokens, and padding.
    ends = np.tile(np.array([5, 12]), len(rows))
    names = pa.array([f"{shard}/{i}/{j}" for i in range(len(rows)) for j in "ab"])
    return TokenBatch(tokens, offsets, pieces=Pieces(np.arange(len(rows) + 1) * 2, ends, names))


def write(directory, name, spec, shards=2) -> list[list[list[int]]]:
    """Write shards; their rows."""
    format = formats.get(name)
    made, entries = [], []
    for shard in range(shards):
        rows = rows_of(spec, shard)
        writer = format.open(str(directory), f"shard-{shard:05}", spec)
        writer.write(batch_of(spec, rows, shard))
        written = writer.close()
        entries.append({"files": [file.as_dict() for file in written.files], "extra": written.extra})
        made.append(rows)
    format.finish(str(directory), entries, spec)
    return made


@SPECS
def test_datasets_loads_from_disk(tmp_path, spec):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    rows = [row for shard in write(tmp_path, "arrow", spec) for row in shard]
    loaded = datasets.load_from_disk(str(tmp_path))
    assert loaded["input_ids"][:] == rows
    if spec.packed:
        assert loaded[0]["doc_ids"] == ["0/0/a", "0/0/b"]
        assert loaded["doc_lengths"][:] == [[5, 7]] * len(rows)
    else:
        assert loaded[1]["id"] == "0/1"


def test_datasets_loads_arrow_files(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    (tmp_path / "shards").mkdir()
    rows = [row for shard in write(tmp_path / "shards", "arrow", SPEC) for row in shard]
    files = str(tmp_path / "shards" / "*.arrow")
    loaded = datasets.load_dataset("arrow", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["input_ids"][:] == rows
    streamed = datasets.load_dataset("arrow", data_files=files, split="train", streaming=True)
    assert [row["input_ids"] for row in streamed] == rows


def test_datasets_loads_parquet_files(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [row for shard in write(tmp_path, "parquet", PACKED) for row in shard]
    loaded = datasets.load_dataset("parquet", data_files=str(tmp_path / "*.parquet"), split="train", streaming=True)
    assert [row["tokens"] for row in loaded] == rows


@pytest.mark.slow
@SPECS
def test_megatron_core_indexed_dataset(tmp_path, spec):
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    for shard, rows in enumerate(write(tmp_path, "megatron", spec)):
        for mmap in (True, False):
            found = indexed.IndexedDataset(str(tmp_path / f"shard-{shard:05}"), mmap=mmap)
            assert [found[i].tolist() for i in range(len(found))] == rows
            assert found.sequence_lengths.tolist() == [len(row) for row in rows]
            assert found.document_indices.tolist() == list(range(len(rows) + 1))
            assert found.index.dtype == indexed.DType.optimal_dtype(spec.vocab_size)
    # Megatron's own tool puts them together, and a shard without tokens opens.
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "all.bin"), dtype=found.index.dtype)
    for shard in range(2):
        builder.add_index(str(tmp_path / f"shard-{shard:05}"))
    builder.finalize(str(tmp_path / "all.idx"))
    merged = indexed.IndexedDataset(str(tmp_path / "all"))
    assert len(merged) == 2 * len(rows)
    writer = formats.get("megatron").open(str(tmp_path), "shard-00009", SPEC)
    writer.write(batch_of(SPEC, [[], []], 9))
    writer.close()
    assert [len(row) for row in indexed.IndexedDataset(str(tmp_path / "shard-00009"))[0:2]] == [0, 0]


@pytest.mark.slow
@SPECS
def test_streaming_dataset(tmp_path, spec):
    streaming = pytest.importorskip("streaming")
    rows = [row for shard in write(tmp_path, "mds", spec) for row in shard]
    found = streaming.StreamingDataset(
        local=str(tmp_path), shuffle=False, batch_size=1, validate_hash=None, num_canonical_nodes=1
    )
    samples = [found[i] for i in range(len(found))]
    assert [sample["tokens"].tolist() for sample in samples] == rows
    assert samples[0]["tokens"].dtype == formats.get("mds").dtype(spec.vocab_size)
    if spec.packed:
        assert samples[0]["doc_ids"] == ["0/0/a", "0/0/b"]
        assert samples[0]["doc_lengths"].tolist() == [5, 7]
    else:
        assert samples[1]["id"] == "0/1"
    assert [sample["tokens"].tolist() for sample in found] == rows
    streaming.base.util.clean_stale_shared_memory()
    # From a "remote" place, every file is checked against its hash.
    copied = streaming.StreamingDataset(
        remote=str(tmp_path), local=str(tmp_path / "copy"), shuffle=False, batch_size=1, validate_hash="xxh3_64"
    )
    assert [sample["tokens"].tolist() for sample in copied] == rows
    streaming.base.util.clean_stale_shared_memory()


@pytest.mark.slow
def test_streaming_encodes_the_same_bytes(tmp_path):
    streaming = pytest.importorskip("streaming")
    for spec in (SPEC, PACKED):
        directory = tmp_path / str(spec.packed)
        directory.mkdir()
        rows = write(directory, "mds", spec, 1)[0]
        # Their writer refuses arrays without elements, which their reader reads.
        rows = [row for row in rows if row]
        batch = batch_of(spec, rows, 0)
        writer = formats.get("mds").open(str(directory), "shard-00001", spec)
        writer.write(batch)
        writer.close()
        kind = formats.get("mds").dtype(spec.vocab_size)
        columns = {"tokens": f"ndarray:{kind.name}" + (":16" if spec.packed else "")}
        columns |= {"doc_ids": "json", "doc_lengths": "ndarray:int32"} if spec.packed else {"id": "json"}
        with streaming.MDSWriter(out=str(directory / "theirs"), columns=columns, hashes=["xxh3_64"]) as theirs:
            for i, row in enumerate(rows):
                sample = {"tokens": np.array(row, kind)}
                if spec.packed:
                    sample |= {"doc_ids": [f"0/{i}/a", f"0/{i}/b"], "doc_lengths": np.array([5, 7], np.int32)}
                else:
                    sample["id"] = f"0/{i}"
                theirs.write(sample)
        ours = (directory / "shard-00001.000.mds").read_bytes()
        assert (directory / "theirs" / "shard.00000.mds").read_bytes() == ours


@pytest.mark.slow
@SPECS
def test_litdata_tokens_loader(tmp_path, spec):
    litdata = pytest.importorskip("litdata")
    shards = write(tmp_path, "litdata", spec)
    expected = []
    for rows in shards:
        tokens = [token for row in rows for token in row]
        expected += [tokens[i : i + 16] for i in range(0, len(tokens) - 15, 16)]
    found = litdata.StreamingDataset(str(tmp_path), item_loader=litdata.TokensLoader(block_size=16), shuffle=False)
    assert [found[i].tolist() for i in range(len(found))] == expected
    batches = litdata.StreamingDataLoader(found, batch_size=4, num_workers=0)
    assert [row for batch in batches for row in batch.tolist()] == expected
    if spec.packed:
        assert expected == [row for rows in shards for row in rows]


@pytest.mark.slow
@SPECS
def test_datatrove_datasets(tmp_path, spec):
    dataset = pytest.importorskip("datatrove.utils.dataset")
    pytest.importorskip("torch")
    shards = write(tmp_path, "datatrove", spec)
    size = formats.get("datatrove").dtype(spec.vocab_size).itemsize
    found = dataset.DatatroveFolderDataset(
        str(tmp_path), seq_len=15, filename_pattern="*.ds", token_size=size, return_positions=True
    )
    expected = []
    for rows in shards:
        tokens = [token for row in rows for token in row]
        expected += [tokens[i : i + 16] for i in range(0, len(tokens) - 15, 16)]
    samples = [found[i] for i in range(len(found))]
    assert [sample["input_ids"].tolist() for sample in samples] == expected
    if spec.packed:
        assert samples[0]["positions"].tolist() == [*range(5), *range(7), *range(4)]


@SPECS
def test_datatrove_reads_the_documents(tmp_path, spec):
    """Its merger, which goes by index and metadata."""
    merger = pytest.importorskip("datatrove.pipeline.tokens.merger")
    (tmp_path / "in").mkdir()
    shards = write(tmp_path / "in", "datatrove", spec)
    merger.DocumentTokenizerMerger(
        str(tmp_path / "in"), str(tmp_path / "out"), "merged", shuffle=False, progress=False
    ).run()
    kind = formats.get("datatrove").dtype(spec.vocab_size)
    ends = np.fromfile(tmp_path / "out" / "000_merged.ds.index", "<u8").astype(int)
    documents = [part.tolist() for part in np.split(np.fromfile(tmp_path / "out" / "000_merged.ds", kind), ends[:-1])]
    expected = [row for rows in shards for row in rows]
    if spec.packed:
        expected = [part for row in expected for part in (row[:5], row[5:12], row[12:])]
    assert documents == expected
    said = (tmp_path / "out" / "000_merged.ds.metadata").read_text()
    ours = (tmp_path / "in" / "shard-00000.ds.metadata").read_text()
    assert said.split("\n")[0] == ours.split("\n")[0] == f"f00d|{kind.itemsize}"


@pytest.mark.slow
@SPECS
def test_dolma_puts_shards_together(tmp_path, spec):
    """dolma has writers and one reader, that of its resharding."""
    reshard = pytest.importorskip("dolma.tokenizer.reshard")
    shards = write(tmp_path, "dolma", spec)
    paths = [
        reshard.TokensMetadataPaths(str(tmp_path / f"shard-{i:05}.npy"), str(tmp_path / f"shard-{i:05}.csv.gz"))
        for i in range(len(shards))
    ]
    kind = formats.get("dolma").dtype(spec.vocab_size)
    (tmp_path / "out").mkdir()
    reshard.merge_group(paths, tmp_path / "out" / "merged.npy", dtype=kind)
    tokens = np.memmap(tmp_path / "out" / "merged.npy", kind, "r")
    with gzip.open(tmp_path / "out" / "merged.csv.gz", "rt", newline="") as lines:
        documents = [
            (name, src, int(loc), tokens[int(a) : int(b)].tolist()) for a, b, name, src, loc in csv.reader(lines)
        ]
    expected = []
    for shard, rows in enumerate(shards):
        for i, row in enumerate(rows):
            parts = {"/a": row[:5], "/b": row[5:12]} if spec.packed else {"": row}
            expected += [(f"{shard}/{i}{p}", f"shard-{shard:05}", i + 1, part) for p, part in parts.items()]
    assert documents == expected
    assert tokens.tolist() == [token for rows in shards for row in rows for token in row]


@pytest.mark.slow
def test_dolma_writes_the_same_lines(tmp_path):
    writer = pytest.importorskip("dolma.tokenizer.memmap_writer")
    from dolma.tokenizer.data_types import TokenizerOutput

    rows = write(tmp_path, "dolma", SPEC, 1)[0]
    with writer.MemmapWriter(str(tmp_path / "theirs.npy"), np.dtype("uint16"), max_tokens=100_000) as theirs:
        for i, row in enumerate(rows):
            theirs.write(TokenizerOutput.from_tokens(f"0/{i}", "shard-00000", i + 1, row))
    assert (tmp_path / "theirs.npy").read_bytes() == (tmp_path / "shard-00000.npy").read_bytes()
    read = [gzip.decompress((tmp_path / f"{name}.csv.gz").read_bytes()) for name in ("theirs", "shard-00000")]
    assert read[0] == read[1]


@pytest.mark.slow
@SPECS
def test_olmo_core_reads_dolma(tmp_path, spec, monkeypatch):
    """What trains on dolma's files."""
    numpy_dataset = pytest.importorskip("olmo_core.data.numpy_dataset")
    shards = write(tmp_path, "dolma", spec)
    kind = formats.get("dolma").dtype(spec.vocab_size)
    paths = [str(tmp_path / f"shard-{i:05}.npy") for i in range(len(shards))]
    found = numpy_dataset.NumpyFSLDataset(
        *paths, sequence_length=16, pad_token_id=0, eos_token_id=1, vocab_size=spec.vocab_size, dtype=kind.type
    )
    expected = []
    for rows in shards:
        tokens = [token for row in rows for token in row]
        expected += [tokens[i : i + 16] for i in range(0, len(tokens) - 15, 16)]
    assert [found[i]["input_ids"].tolist() for i in range(len(found))] == expected


@pytest.mark.slow
def test_torch_maps_flat_files(tmp_path):
    """As nanoGPT, and the loaders around llm.c's files do it."""
    torch = pytest.importorskip("torch")
    rows = write(tmp_path, "llm.c", SPEC, 1)[0]
    tokens = [token for row in rows for token in row]
    header = torch.from_file(str(tmp_path / "shard-00000.bin"), False, 256, dtype=torch.int32)
    assert header[:3].tolist() == [20240520, 1, len(tokens)]
    with (tmp_path / "shard-00000.bin").open("rb", buffering=0) as file:
        found = torch.empty(int(header[2]), dtype=torch.uint16)
        file.seek(256 * 4)
        assert file.readinto(found.numpy()) == 2 * int(header[2])
    assert found.tolist() == tokens
    write(tmp_path, "bin", SPEC, 1)
    assert np.memmap(os.fspath(tmp_path / "shard-00000.bin"), np.uint16, "r").tolist() == tokens
