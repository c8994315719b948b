"""Order, validation and mixture of a run, against a plain reference: every document where its hash says, and nowhere else."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.config import load_config
from shardpiece.corpus.keys import below, document_hash
from shardpiece.errors import ConfigError, DataError, OutputError
from shardpiece.pipeline.encode.stage import encode
from shardpiece.shards.readers import iter_rows
from tests.pipeline.test_stages import contents, interrupt

GROUPS = ("wiki", "code", "web")


def documents() -> list[dict]:
    """Some 3 MB: empty and null ones, a long one, two of one id."""
    rng = np.random.default_rng(7)
    words = [f"w{i}" for i in range(500)]
    rows = []
    for i in range(600):
        text = " ".join(rng.choice(words, int(rng.integers(1, 2_400))))
        rows.append({"id": f"d{i}", "text": text, "source": GROUPS[i % 3]})
    rows[5]["text"], rows[6]["text"] = None, ""
    rows[7]["text"] = "long " * 100_000
    rows[9]["id"] = rows[8]["id"]
    return rows


def write(directory, rows: list[dict], files: int, row_group_size: int):
    directory.mkdir()
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("source", pa.string())])
    for f, part in enumerate(np.array_split(np.arange(len(rows)), files)):
        table = pa.Table.from_pylist([rows[i] for i in part], schema)
        pq.write_table(table, directory / f"part-{f:03}.parquet", row_group_size=row_group_size)
    return directory


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return documents()


@pytest.fixture(scope="module")
def place(tmp_path_factory, rows):
    """Two corpora of the same documents in files of other shapes, and a tokenizer."""
    directory = tmp_path_factory.mktemp("shuffle")
    write(directory / "a", rows, 3, 50)
    write(directory / "b", rows, 7, 1000)
    tokenizer = shardpiece.train_bpe(shardpiece.WordTable.from_texts(["w1 w2 w33 w44 long long"], "gpt2"), 280,
                                     special_tokens=["<|endoftext|>"])  # fmt: skip
    shardpiece.save(tokenizer, str(directory / "tokenizer"))
    return directory


def config_for(place, output, corpus="a", **overrides):
    settings = {
        "input": [str(place / corpus)], "id_column": "id", "encode.tokenizer": str(place / "tokenizer"),
        "encode.output": str(output), "encode.append_eos": True, "encode.shard_size": "1MiB",
    }  # fmt: skip
    return load_config(None, settings | {key.replace("__", "."): value for key, value in overrides.items()})


def ids_by_shard(output, split=None) -> list[list[str]]:
    manifest = json.loads((output / "manifest.json").read_text())
    return [
        [row.id for row in iter_rows(str(output), manifest | {"shards": [shard]}, split=split)]
        for shard in manifest["shards"]
    ]


def copies_in_order(rows: list[dict], copies: list[int], seed: int, shards: int) -> list[list[int]]:
    """Shard by shard, the numbers of the documents: a plain sort by the hash of the id and of the copy."""
    found = []
    for copy in range(max(copies)):
        purpose = f"shuffle {copy}" if copy else "shuffle"
        keys = document_hash(seed, pa.array([row["id"] for row in rows]), purpose).tolist()
        found += [(keys[i], i) for i in range(len(rows)) if copies[i] > copy]
    result: list[list[int]] = [[] for _ in range(shards)]
    for key, i in sorted(found):
        result[(key >> 32) * shards >> 32].append(i)
    return result


def test_a_global_shuffle_is_a_sort_by_hash(session, place, rows, tmp_path):
    config = config_for(place, tmp_path / "out", encode__shuffle="global", encode__seed=3)
    report = encode(session, config)
    tokenizer = shardpiece.load(str(place / "tokenizer"))
    eos = tokenizer.special_id("<|endoftext|>")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    shards = len(manifest["shards"])
    assert shards == 4
    expected = copies_in_order(rows, [1] * len(rows), 3, shards)
    assert ids_by_shard(tmp_path / "out") == [[rows[i]["id"] for i in shard] for shard in expected]
    got = [row.tokens.tolist() for row in iter_rows(str(tmp_path / "out"), manifest)]
    assert got == [[*tokenizer.encode(rows[i]["text"] or ""), eos] for shard in expected for i in shard]
    totals = manifest["totals"]
    assert totals["documents"] == report.figures["documents"] == 600
    assert (totals["null_documents"], totals["empty_documents"]) == (1, 1)
    assert totals["bytes"] == sum(len((row["text"] or "").encode()) for row in rows)
    assert manifest["shuffle"] == {"kind": "global", "seed": 3}

    # Other files, tasks and batches: the same bytes. Then a restart that has lost a shard: only that one is written.
    other = tmp_path / "other"
    again = config_for(place, other, "b", encode__shuffle="global", encode__seed=3, encode__memory_per_task="1MiB")
    encode(session, again)
    shard_files = {name: data for name, data in contents(tmp_path / "out").items() if name.startswith("shard-")}
    assert {name: data for name, data in contents(other).items() if name.startswith("shard-")} == shard_files
    whole = contents(other)
    interrupt(other)
    (other / "shard-00002.parquet").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in other.glob("shard-*")}
    encode(session, again)
    assert contents(other) == whole
    after = {path.name: path.stat().st_mtime_ns for path in other.glob("shard-*")}
    assert len(before) == 3
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("shuffle", ["shard", "global"])
def test_a_mixture_is_taken_to_the_token(session, place, rows, tmp_path, shuffle):
    config = config_for(
        place, tmp_path / "out", group_column="source", encode__shuffle=shuffle, encode__format=["parquet", "bin"],
        encode__mixture={"wiki": 2.0, "code": "400K tokens", "*": 0.5}, encode__validation={"fraction": 0.1, "seed": 1},
        encode__empty_documents="skip",
    )  # fmt: skip
    encode(session, config)
    ids = pa.array([row["id"] for row in rows])
    validation = below(document_hash(1, ids, "validation"), 0.1)
    hashes = document_hash(0, ids, "mixture")
    tokenizer = shardpiece.load(str(place / "tokenizer"))
    lengths = [len(tokenizer.encode(row["text"])) + 1 if row["text"] else 0 for row in rows]
    # Code: over and over in the order of hashes until 400,000 tokens are there.
    code = sorted((i for i, row in enumerate(rows) if row["source"] == "code"), key=lambda i: hashes[i])
    copies = [{"wiki": 2, "code": 0, "web": int(hashes[i] < 1 << 63)}[row["source"]] for i, row in enumerate(rows)]
    training = [i for i in code if not validation[i] and lengths[i]]
    left = 400_000
    while left > 0:
        for i in training:
            if left > 0:
                copies[i] += 1
                left -= lengths[i]
                last = hashes[i]
    whole = min(copies[i] for i in training)
    for i in code:
        if validation[i]:
            copies[i] = int(whole > 0 or hashes[i] >> 48 <= last >> 48)
    copies = [min(c, 1) if v else c for c, v in zip(copies, validation, strict=True)]
    expected = Counter({rows[i]["id"]: 0 for i in range(len(rows))})
    for i, row in enumerate(rows):
        if row["text"]:
            expected[row["id"]] += copies[i]
    for split, chosen in (("train", ~validation), ("validation", validation)):
        got = Counter(name for shard in ids_by_shard(tmp_path / "out", split) for name in shard)
        names = {rows[i]["id"] for i in np.flatnonzero(chosen)}
        assert got == Counter({name: n for name, n in expected.items() if name in names})
        assert sorted(path.name for path in (tmp_path / "out" / "bin" / split).glob("*.bin"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["mixture"] == {"groups": {"wiki": 2.0, "code": "400K tokens", "*": 0.5}, "seed": 0}
    report = manifest["increments"][0]["mixture"]
    for name, group in report.items():
        mine = [i for i, row in enumerate(rows) if row["source"] == name]
        assert group["taken"]["tokens"] == sum(copies[i] * lengths[i] for i in mine)
        assert group["taken"]["documents"] == sum(copies[i] for i in mine if lengths[i])
        assert group["source"]["bytes"] == sum(len(rows[i]["text"] or "") for i in mine if not validation[i])
    assert sum(copies[i] * lengths[i] for i in training) - 400_000 < 5_000
    assert (report["wiki"]["epochs"], report["web"]["epochs"]) == (2.0, 0.5)
    # Copies do not stand side by side.
    order = [name for shard in ids_by_shard(tmp_path / "out", "train") for name in shard]
    assert sum(a == b for a, b in pairwise(order)) < 20


def test_a_table_gives_what_its_files_give(session, place, rows, tmp_path):
    """But for documents of one id, which a table has in no order."""
    spark = session()
    spark.read.parquet(str(place / "b")).createOrReplaceTempView("documents")
    settings = {"encode__shuffle": "global", "group_column": "source", "encode__metadata_columns": ["source"],
                "encode__mixture": {"wiki": 1.5, "*": 1.0}, "encode__validation": {"fraction": 0.1}}  # fmt: skip
    encode(session, config_for(place, tmp_path / "files", **settings))
    query = "sql:SELECT * FROM documents ORDER BY text"
    for name, given in (("table", "table:documents"), ("query", query)):
        encode(session, config_for(place, tmp_path / name, input=[given], **settings))
    shards = {
        where: {name: data for name, data in contents(tmp_path / where).items() if "shard-" in name}
        for where in ("files", "table", "query")
    }
    assert len(shards["table"]) == 10
    assert shards["table"] == shards["query"]
    assert shards["files"].keys() == shards["table"].keys()
    assert sum(shards["files"][name] != shards["table"][name] for name in shards["files"]) <= 1
    manifest = json.loads((tmp_path / "table" / "manifest.json").read_text())
    [source] = manifest["input"]
    assert (source["path"], source["rows"]) == ("table:documents", 600)
    # Unchanged it is skipped; with one row less it is another input.
    again = config_for(place, tmp_path / "table", input=["table:documents"], **settings)
    assert encode(session, again).skipped
    spark.read.parquet(str(place / "b")).where("id != 'd3'").createOrReplaceTempView("documents")
    with pytest.raises(OutputError, match="made from other input"):
        encode(session, again)
    for key, value, message in (("id_column", None, "Set id_column"), ("encode__shuffle", "shard", "in no order")):
        with pytest.raises(ConfigError, match=message):
            encode(session, config_for(place, tmp_path / "x", input=["table:documents"], **settings | {key: value}))


def test_what_cannot_be_is_said_before_or_named(session, place, rows, tmp_path):
    def run(**overrides):
        encode(session, config_for(place, tmp_path / "out", **overrides))

    with pytest.raises(ConfigError, match="encode.mixture: goes by group_column, which is not set"):
        run(encode__mixture={"wiki": 1})
    with pytest.raises(ConfigError, match="documents of 'wiki' are taken more than once, and with shuffle: none"):
        run(encode__mixture={"wiki": 1.5, "*": 1}, group_column="source")
    with pytest.raises(ConfigError, match="nothing is said of the groups 'code', 'web'"):
        run(encode__mixture={"wiki": 1}, group_column="source")
    with pytest.raises(ConfigError, match="documents of 'web' are taken more than once"):
        run(encode__mixture={"web": "1B tokens", "*": 0}, group_column="source", overwrite=True)
    without = [{**row, "id": None if i == 40 else row["id"]} for i, row in enumerate(rows[:100])]
    write(tmp_path / "no-id", without, 1, 30)
    with pytest.raises(
        DataError, match=r"part-000\.parquet, row 40: the document has no id, and shuffling goes by ids"
    ):
        run(input=[str(tmp_path / "no-id")], encode__shuffle="global", overwrite=True)
