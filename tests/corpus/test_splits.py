"""Listing and planning: every way the input can be wrong is said in one line, before anything starts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardpiece.corpus.base import Columns, Split
from shardpiece.corpus.sources import inside, list_files
from shardpiece.corpus.splits import pack_splits, plan_input, read_batches
from shardpiece.corpus.stdlib import write_corpus as write_stdlib
from shardpiece.errors import DataError, InputError
from tests.conftest import corpus_rows, write_corpus


def test_files_by_directory_glob_and_path(corpus):
    by_directory = list_files([str(corpus)])
    assert [f.path for f in by_directory] == sorted(str(p) for p in corpus.glob("*.parquet"))
    assert list_files([f"{corpus}/*.parquet"]) == by_directory
    assert list_files([f"{corpus}/part-0000[01].parquet", str(corpus)]) == by_directory
    assert list_files([by_directory[0].path]) == by_directory[:1]
    assert all(f.size > 0 for f in by_directory)


def test_bookkeeping_files_are_not_input(tmp_path):
    write_corpus(tmp_path, corpus_rows(1), files=1)
    for name in ("_metadata.parquet", ".hidden.parquet"):
        (tmp_path / name).write_bytes(b"")
    assert len(list_files([str(tmp_path)])) == 1


def test_links_hidden_places_and_odd_names(tmp_path):
    real = write_corpus(tmp_path / "real", corpus_rows(1), files=1) / "part-00000.parquet"
    data = tmp_path / "data"
    names = ["a.parquet", "b/c.parquet", "d[1].parquet", "e::f.parquet", "g h#%?.parquet", "_temporary/0/x.parquet",
             ".git/y.parquet", "_z.parquet", "whole.parquet/part-0.parquet"]  # fmt: skip
    for name in names:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(real.read_bytes())
    (data / "link.parquet").symlink_to(real)
    (data / "linked").symlink_to(tmp_path / "real")
    (data / "loop").symlink_to(data)
    kept = ["a.parquet", "b/c.parquet", "d[1].parquet", "e::f.parquet", "g h#%?.parquet", "link.parquet",
            "linked/part-00000.parquet", "whole.parquet/part-0.parquet"]  # fmt: skip
    assert [f.path for f in list_files([str(data)])] == [f"{data}/{name}" for name in sorted(kept)]
    top = [name for name in kept if "/" not in name] + ["whole.parquet/part-0.parquet"]
    assert [f.path for f in list_files([f"{data}/*.parquet"])] == [f"{data}/{name}" for name in sorted(top)]
    for name in ("d[1].parquet", "e::f.parquet", "_z.parquet"):
        assert [f.path for f in list_files([str(data / name)])] == [str(data / name)]
    odd = data / "bad\udcff.parquet"
    odd.write_bytes(b"")
    with pytest.raises(InputError, match="not UTF-8"):
        list_files([str(data)])


def test_a_place_below_the_input_is_known(tmp_path):
    (tmp_path / "data" / "out").mkdir(parents=True)
    out = str(tmp_path / "data" / "out")
    assert inside(out, [str(tmp_path / "data")])
    assert inside(str(tmp_path / "data"), [str(tmp_path / "data")])
    assert inside(out, [f"{tmp_path}/data/**/*.parquet"])
    assert not inside(out, [f"{tmp_path}/data/*.parquet"])
    assert not inside(str(tmp_path / "database"), [str(tmp_path / "data")])


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path, monkeypatch):
    write_corpus(tmp_path / "data" / "locked", corpus_rows(1), files=1)

    def refuse(path, *args):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(InputError, match="not readable"):
        list_files([str(tmp_path / "data")])


@pytest.mark.parametrize("pattern", ["nothing/*.parquet", "missing.parquet", "."])
def test_an_empty_glob_names_itself(tmp_path, pattern):
    with pytest.raises(InputError, match="no Parquet, JSON Lines or Arrow file matches"):
        list_files([str(tmp_path / pattern)])
    with pytest.raises(InputError, match="no input given"):
        list_files([])


def test_splits_cover_every_row_once(corpus):
    columns = Columns("text", "id", "lang")
    files = list_files([str(corpus)])
    splits = plan_input(files, columns).splits
    seen = []
    for split in splits:
        rows = 0
        for batch in read_batches([split], columns):
            assert batch.positions.tolist() == [*range(split.first_row + rows, split.first_row + rows + len(batch))]
            rows += len(batch)
            seen += batch["id"].to_pylist()
        assert rows == split.rows
    assert sorted(seen) == sorted(row["id"] for row in corpus_rows())
    assert len(seen) == len(set(seen))
    assert [entry["rows"] for entry in plan_input(files, columns).ledger()] == [80, 80, 80]


def test_packing_is_a_function_of_the_splits():
    splits = [Split("a", i, 0, 0, 1, size) for i, size in enumerate([5, 5, 20, 1, 1, 9])]
    assert [[s.text_bytes for s in group] for group in pack_splits(splits, 10)] == [[5, 5], [20], [1, 1], [9]]
    assert pack_splits([], 10) == []


def test_a_large_row_group_becomes_several_splits(tmp_path):
    texts = [f"{i:06}" * 20_000 for i in range(1000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=900)
    columns = Columns("text")
    splits = plan_input(list_files([str(tmp_path)]), columns).splits
    assert len(splits) == 8
    assert [(s.row_group, s.skip, s.first_row) for s in splits] == [
        *((0, 900 * part // 7, 900 * part // 7) for part in range(7)),
        (1, 0, 900),
    ]
    assert sum(s.rows for s in splits) == 1000
    seen = []
    for split in splits:
        for batch in read_batches([split], columns):
            assert batch.positions[0] == len(seen)
            seen += batch["text"].to_pylist()
    assert seen == texts


def test_wrong_columns(corpus, tmp_path):
    files = list_files([str(corpus)])
    with pytest.raises(
        InputError, match=r"no column 'body' \(its columns: id, text, lang\). Choose one with --text-column"
    ):
        plan_input(files, Columns("body"))
    with pytest.raises(InputError, match="--group-column"):
        plan_input(files, Columns("text", group="language"))
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "numbers.parquet")
    with pytest.raises(InputError, match="holds int64, not text"):
        plan_input(list_files([str(tmp_path)]), Columns("text"))


def test_two_columns_of_one_name(tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="several columns are named 'text'"):
        plan_input(list_files([str(tmp_path)]), Columns("text"))


def test_a_file_that_is_not_parquet_is_named(tmp_path):
    write_corpus(tmp_path, corpus_rows(1), files=2)
    bad = tmp_path / "part-00001.parquet"
    bad.write_bytes(bad.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"part-00001.parquet: not a readable Parquet file"):
        plan_input(list_files([str(tmp_path)]), Columns("text"))
    bad.write_bytes(b"")
    with pytest.raises(InputError, match="part-00001"):
        plan_input(list_files([str(tmp_path)]), Columns("text"))


def test_damage_inside_a_row_group_is_named(tmp_path):
    rows = [{"id": str(i), "text": f"text {i} " * 50, "lang": "en"} for i in range(200)]
    write_corpus(tmp_path, rows, files=1, row_group_size=200)
    path = tmp_path / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    (split,) = plan_input(list_files([str(tmp_path)]), Columns("text", "id")).splits
    with pytest.raises(DataError, match="part-00000.parquet: cannot be read as Parquet"):
        list(read_batches([split], Columns("text", "id")))


def test_repeated_documents_come_in_small_batches(tmp_path):
    # Dictionary encoding stores the text once: the footer states 1 MB for 400 MB.
    pq.write_table(pa.table({"text": ["x" * 100_000] * 4000}), tmp_path / "a.parquet")
    columns = Columns("text")
    (split,) = plan_input(list_files([str(tmp_path)]), columns).splits
    rows = 0
    for batch in read_batches([split], columns):
        assert batch.positions[0] == rows
        assert batch["text"].nbytes < 9 << 20
        rows += len(batch)
    assert rows == 4000


def test_the_standard_library_is_a_corpus(tmp_path):
    paths = write_stdlib(str(tmp_path / "corpus"))
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    assert table.nbytes > 8e6
    texts = table["text"].to_pylist()
    assert None in texts
    assert "" in texts
    assert len(set(table["id"].to_pylist())) == len(table)
