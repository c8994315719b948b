"""The same documents in every format, and what is common to all: columns of paths, samples, files that are bad."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from shardpiece import storage
from shardpiece.corpus.base import BatchRange, Columns, Sample, Selection
from shardpiece.corpus.sources import dataframe_of, format_of, list_files
from shardpiece.corpus.splits import plan_input, read_batches
from shardpiece.errors import ConfigError, DataError, InputError

ROWS = [
    {
        "id": f"r{i}",
        "text": None if i % 9 == 4 else f"text {i} é\u2028" * (i % 5),
        "lang": ("en", "de", None)[i % 3],
        "n": i,
        "score": i / 8,
        "meta": {"tags": [str(i)] * (i % 3)},
    }
    for i in range(120)
]
TABLE = pa.Table.from_pylist(ROWS)
COLUMNS = Columns("text", "id", "lang", ("score", "meta"))


def write_file(path) -> None:
    """The rows, as the name says."""
    name = str(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(json.dumps(row) for row in ROWS).encode()
    if name.endswith(".parquet"):
        pq.write_table(TABLE, path, row_group_size=50)
    elif name.endswith(".arrow"):
        with ipc.new_file(name, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=50)
    elif name.endswith(".feather"):
        with ipc.new_file(name, TABLE.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(TABLE)
    elif name.endswith(".ipc"):
        encoded = TABLE.set_column(2, "lang", TABLE["lang"].combine_chunks().dictionary_encode())
        with ipc.new_stream(name, encoded.schema) as writer:
            writer.write_table(encoded, max_chunksize=50)
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines))
    elif name.endswith(".zst"):
        path.write_bytes(pa.compress(lines, "zstd", asbytes=True))
    else:
        path.write_bytes(lines)


NAMES = ["a.parquet", "b.jsonl", "c.json.gz", "d.ndjson.zst", "e.arrow", "f.feather", "g.ipc", "h.jsonl"]


def rows_of(plan) -> dict[str, list[dict]]:
    """Documents by the name of their file; texts as bytes, groups as strings."""
    found: dict[str, list[dict]] = {}
    for batch in read_batches(plan.splits, plan.selection):
        columns = {name: batch[name].to_pylist() for name in plan.selection.columns.names()}
        columns["text"] = batch["text"].cast(pa.large_binary()).to_pylist()
        columns["place"] = batch.ids(None).to_pylist()
        names = [*columns]
        found.setdefault(os.path.basename(batch.split.path), []).extend(
            dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)
        )
    return found


@pytest.mark.parametrize("where", [None, "n >= 100 AND lang = 'en' OR text IS NULL"])
def test_every_format_has_the_same_documents(tmp_path, where):
    for name in NAMES:
        write_file(tmp_path / name)
    plan = plan_input(list_files([str(tmp_path)]), Selection(COLUMNS, where=where))
    wanted = [
        {name: row[name] for name in COLUMNS.names()} | {"text": None if row["text"] is None else row["text"].encode()}
        for row in ROWS
        if where is None or (row["n"] >= 100 and row["lang"] == "en") or row["text"] is None
    ]
    found = rows_of(plan)
    assert [*found] == NAMES
    places = set()
    for name, rows in found.items():
        assert [{key: row[key] for key in COLUMNS.names()} for row in rows] == wanted, name
        places.update(row["place"] for row in rows)
    assert len(places) == len(wanted) * len(NAMES)
    if where is None:
        assert [row["place"] for row in found["e.arrow"]] == [f"{tmp_path}/e.arrow:{i}" for i in range(120)]
    assert plan.metadata.field("meta").type == TABLE.schema.field("meta").type
    assert plan.options().get("where") == where


def test_what_a_name_says():
    kinds = {"x.parquet": "parquet", "x.jsonl": "jsonl", "x.json.zst": "jsonl", "x.txt.gz": "text", "x.arrow": "arrow",
             "x": "parquet", "x.gz": "parquet", "x.parquet.gz": "parquet"}  # fmt: skip
    assert {name: format_of(name) for name in kinds} == kinds
    assert format_of("x.parquet", "text") == "text"


def test_directories_give_what_is_surely_meant(tmp_path):
    for name in ("a.parquet", "b.jsonl", "b.jsonl.gz", "c.json", "c.json.gz", "README.txt", "d.arrow", "e.csv"):
        (tmp_path / name).write_bytes(b"")

    def names(*how):
        return [os.path.basename(file.path) for file in list_files([str(tmp_path)], *how)]

    assert names() == ["a.parquet", "b.jsonl", "b.jsonl.gz", "c.json.gz", "d.arrow"]
    assert names("jsonl") == ["b.jsonl", "b.jsonl.gz", "c.json", "c.json.gz"]
    assert names("text") == ["README.txt"]
    assert [file.format for file in list_files([f"{tmp_path}/*"])] == [
        "text", "parquet", "jsonl", "jsonl", "jsonl", "jsonl", "arrow", "parquet",
    ]  # fmt: skip
    assert [file.format for file in list_files([f"{tmp_path}/e.csv"], "text")] == ["text"]


def test_dataframes_stand_alone():
    assert dataframe_of(["data/*.parquet", "table.parquet"]) is None
    assert dataframe_of(["sql:SELECT 1"]) == "sql:SELECT 1"
    with pytest.raises(ConfigError, match="must be the only input"):
        dataframe_of(["data", "table:x"])
    with pytest.raises(ConfigError, match="names no table"):
        dataframe_of(["table: "])


def test_a_change_of_a_file_shows(tmp_path):
    """Size, head and tail; of Parquet the footer. What they miss is documented."""
    for name in NAMES:
        path = tmp_path / name
        write_file(path)
        before = plan_input(list_files([str(path)]), COLUMNS).ledger()
        assert plan_input(list_files([str(path)]), COLUMNS).ledger() == before
        if name.endswith((".jsonl", ".zst")):
            data = path.read_bytes()
            changed = data.replace(b"r1", b"R1", 1) if name.endswith(".jsonl") else data + data
            path.write_bytes(changed)
            assert plan_input(list_files([str(path)]), COLUMNS).ledger() != before


def test_record_batches_are_split_and_cut(tmp_path):
    path = tmp_path / "a.arrow"
    table = pa.table({"text": [f"{i:06}" * 5_000 for i in range(2_000)], "n": pa.array(range(2_000), pa.int16())})
    with ipc.new_file(str(path), table.schema) as writer:
        for start in range(0, 2_000, 100):
            writer.write_batch(table.slice(start, 100).to_batches()[0])
        writer.write_batch(table.slice(0, 0).combine_chunks().to_batches()[0] if table.slice(0, 0).num_rows else
                           pa.RecordBatch.from_pylist([], schema=table.schema))  # fmt: skip
    plan = plan_input(list_files([str(path)]), Columns("text", "n"))
    assert len(plan.splits) == 4
    assert plan.rows == 2_000
    assert all(isinstance(split, BatchRange) for split in plan.splits)
    seen = []
    for split in plan.splits:
        for batch in read_batches([split], plan.selection):
            assert batch.positions[0] == len(seen)
            assert batch["text"].nbytes < 9 << 20
            seen += batch["n"].to_pylist()
    assert seen == [*range(2_000)]
    # One record batch of everything, as pandas writes it.
    with ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table.combine_chunks())
    plan = plan_input(list_files([str(path)]), Columns("text"))
    assert [len(batch) for batch in read_batches(plan.splits, plan.selection)] == [279] * 7 + [47]


def test_columns_in_paths(tmp_path):
    for part in (
        "lang=en/year=2023",
        "lang=de/year=2024",
        "lang=__HIVE_DEFAULT_PARTITION__/year=2024",
        "lang=a%2Fb/year=7",
    ):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "x.jsonl").write_text('{"text": "a", "n": 1}\n{"text": "b", "n": 2}\n')
        pq.write_table(pa.table({"text": ["c"], "n": [3]}), tmp_path / part / "y.parquet")
    files = list_files([str(tmp_path)])

    def read(columns, where=None):
        plan = plan_input(files, Selection(columns, where=where))
        return plan, [row for batch in read_batches(plan.splits, plan.selection) for row in batch.data.to_pylist()]

    _, rows = read(Columns("text", group="lang", metadata=("year", "n")))
    assert len(rows) == 12
    assert {(row["lang"], row["year"]) for row in rows} == {
        ("en", "2023"),
        ("de", "2024"),
        (None, "2024"),
        ("a/b", "7"),
    }
    plan, rows = read(Columns("text", group="lang"), "year >= 2024 AND n > 1")
    assert [(row["lang"], row["text"]) for row in rows] == [
        (None, b"b"), (None, "c"), ("de", b"b"), ("de", "c"),
    ]  # fmt: skip
    assert len(plan.splits) == 4
    assert plan.rows is None
    # A column that files have themselves is theirs.
    pq.write_table(pa.table({"text": ["c"], "lang": ["own"]}), tmp_path / "lang=en/year=2023/y.parquet")
    with pytest.raises(InputError, match=r"x\.jsonl: no column 'lang'"):
        plan_input(list_files([str(tmp_path)]), Columns("text", group="lang"))
    [own] = plan_input(list_files([f"{tmp_path}/lang=en/year=2023/y.parquet"]), Columns("text", group="lang")).splits
    assert next(read_batches([own], Columns("text", group="lang")))["lang"].to_pylist() == ["own"]


def test_a_sample_is_stable(tmp_path):
    for name in ("a.parquet", "b.jsonl", "g.ipc"):
        write_file(tmp_path / name)

    def ids(names, fraction, seed=0, column="id"):
        plan = plan_input(
            list_files([str(tmp_path / name) for name in names]),
            Selection(Columns("text", column), sample=Sample(fraction, seed)),
        )
        return [name for batch in read_batches(plan.splits, plan.selection) for name in batch.ids(column).to_pylist()]

    few = ids(["a.parquet"], 0.25)
    assert 10 < len(few) < 50
    assert ids(["b.jsonl"], 0.25) == ids(["g.ipc"], 0.25) == few
    assert ids(["a.parquet", "b.jsonl"], 0.25) == few * 2
    assert set(few) < set(ids(["a.parquet"], 0.5))
    assert ids(["a.parquet"], 0.25, 1) != few
    assert len(ids(["a.parquet"], 1.0)) == 120
    places = ids(["a.parquet", "b.jsonl"], 0.25, column=None)
    assert places[: len(ids(["a.parquet"], 0.25, column=None))] == ids(["a.parquet"], 0.25, column=None)
    (tmp_path / "c.jsonl").write_text('{"text": "a", "id": "x"}\n{"text": "b"}\n')
    with pytest.raises(DataError, match=r"c\.jsonl, line 2: the document has no id, and sample goes by ids"):
        ids(["c.jsonl"], 0.5)


@pytest.fixture
def bad_corpus(tmp_path):
    """Good files and one of every kind of bad one."""
    write_file(tmp_path / "good-1.parquet")
    write_file(tmp_path / "good-2.jsonl.gz")
    whole = (tmp_path / "good-1.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-30])
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "empty.jsonl.gz").write_bytes(b"")
    (tmp_path / "not.jsonl.gz").write_bytes(b"hello")
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "lacking.parquet")
    pq.write_table(pa.table({"text": [1], "id": ["a"]}), tmp_path / "numbers.parquet")
    write_file(tmp_path / "cut.arrow")
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "cut.arrow").read_bytes()[:-100])
    write_file(tmp_path / "locked.parquet")
    return tmp_path


def test_bad_files_are_all_named_or_left_out(bad_corpus, monkeypatch):
    opened = storage.is_local

    def refuse(path):
        if "locked" in path:
            raise PermissionError(13, "Permission denied", path)
        return opened(path)

    files = list_files([str(bad_corpus)])
    monkeypatch.setattr(storage, "is_local", refuse)  # tests may run as root, who may read everything
    columns = Columns("text", "id")
    with pytest.raises(InputError) as caught:
        plan_input(files, columns)
    message = str(caught.value)
    assert message.startswith("8 of 10 input files cannot be used: ")
    assert "\n" not in message
    for name in ("cut.parquet: not a readable Parquet file", "empty.parquet: not a readable", "empty.jsonl.gz: an empty file",
                 "not.jsonl.gz: not a readable JSON Lines file", "lacking.parquet: no column 'text'",
                 "numbers.parquet: column 'text' holds int64", "cut.arrow: ", "locked.parquet: not a readable", "bad_files: skip"):  # fmt: skip
        assert name in message
    plan = plan_input(files, columns, "skip")
    assert [os.path.basename(file.path) for file in plan.files] == ["good-1.parquet", "good-2.jsonl.gz"]
    assert len(plan.skipped) == len(plan.options()["skipped_files"]) == 8
    assert sum(len(batch) for batch in read_batches(plan.splits, plan.selection)) == 240
    with pytest.raises(InputError, match="none of the 2 input files can be used"):
        plan_input([file for file in files if "cut" in file.path], columns, "skip")


def test_many_bad_files_are_counted(tmp_path):
    for i in range(30):
        (tmp_path / f"{i:02}.parquet").write_bytes(b"x" * i)
    write_file(tmp_path / "good.parquet")
    with pytest.raises(InputError, match=r"30 of 31 input files cannot be used: .*09\.parquet.*; and 20 more\. Mend"):
        plan_input(list_files([str(tmp_path)]), Columns("text"))


def test_another_type_of_metadata_is_another_schema(tmp_path):
    pq.write_table(pa.table({"text": ["a"], "x": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["a"], "x": [2]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"text": ["a"], "x": ["c"]}), tmp_path / "c.parquet")
    columns = Columns("text", metadata=("x",))
    with pytest.raises(InputError, match=r"c\.parquet: column 'x' holds string, int64 in the files before it"):
        plan_input(list_files([str(tmp_path)]), columns)
    plan = plan_input(list_files([str(tmp_path)]), columns, "skip")
    assert plan.metadata == pa.schema([("x", pa.int64())])
    assert [batch["x"].type for batch in read_batches(plan.splits, plan.selection)] == [pa.int64()] * 2


def test_urls(tmp_path):
    """Any fsspec store: here the memory of this process."""
    for name in ("a.parquet", "b.jsonl", "c.json.gz", "e.arrow", "g.ipc"):
        write_file(tmp_path / name)
        storage.write_bytes(f"memory://corpus/lang=en/{name}", (tmp_path / name).read_bytes())
    plan = plan_input(list_files(["memory://corpus"]), Selection(Columns("text", "id"), where="n > 100"))
    assert [[row["id"] for row in rows] for rows in rows_of(plan).values()] == [[f"r{i}" for i in range(101, 120)]] * 5
