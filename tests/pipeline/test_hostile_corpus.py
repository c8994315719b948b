"""Everything that goes wrong in corpora, in one: each document is encoded or counted, each broken file is refused by name, and
the rest is as if it were alone."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.config import load_config
from shardpiece.errors import DataError, InputError
from shardpiece.pipeline.count import count
from shardpiece.pipeline.encode.stage import encode
from shardpiece.shards.manifest import read_manifest
from shardpiece.shards.readers import iter_rows
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.shard_decoding import decoded_documents
from tests.conftest import TEXTS

INVALID = [
    b"\xff\xfe",
    b"ok",
    b"cut \xe6\x97",
    b"\xed\xa0\x80 surrogate",
    b"overlong \xc0\xaf",
    b"\xf4\x90\x80\x80 beyond",
    b"",
]


def write(path, ids: list[str], texts, kind=None, **options) -> None:
    path.parent.mkdir(exist_ok=True)
    table = pa.table({"id": pa.array(ids, pa.string()), "text": texts if kind is None else pa.array(texts, kind)})
    pq.write_table(table, path, **options)


def write_hostile(directory, document_bytes: int, word_bytes: int, tiny: int) -> list[tuple[str, str | None]]:
    """The good but awkward files; (id, text) of their rows in the order they are read."""
    rows: list[tuple[str, str | None]] = []

    def add(name: str, texts: list, kind=pa.string(), ids: list[str] | None = None, **options) -> None:  # noqa: B008
        ids = ids or [f"{name}/{i}" for i in range(len(texts))]
        write(directory / f"{name}.parquet", ids, texts, kind, **options)
        rows.extend(
            (i, t.decode(errors="replace") if isinstance(t, bytes) else t) for i, t in zip(ids, texts, strict=True)
        )

    add("00-texts", [None, "", None, *TEXTS, "<|endoftext|>", "<|endoftext|><|endoftext|> </s> [SEP]"])
    add("01-invalid", INVALID, pa.binary())
    add(
        "02-tiny",
        [chr(97 + i % 26) if i % 7 else "" for i in range(tiny)],
        pa.large_string(),
        row_group_size=1 << 20,
    )
    add("03-long-word", ["before", "x" * word_bytes, "ab" * (word_bytes // 2), "after"], row_group_size=4)
    sentence = "It's a long document, 日本語 too; number 12345.\n"
    add(
        "04-long-document",
        ["before", sentence * (document_bytes // len(sentence.encode())), "after"],
        pa.large_string(),
    )
    add("05-same-ids", ["one", "two", "three", "four"], ids=["same", "same", "same", "other"], row_group_size=1)
    add("06-only-nulls", [None, None, None])
    add("07-no-rows", [])
    add("08-dictionary", ["a", None, "a", "b"] * 50, pa.dictionary(pa.int32(), pa.string()))
    return rows


def write_broken(directory) -> dict[str, str]:
    """Files that cannot be read: name → what is said of it."""
    good = directory.parent / "good.parquet"
    write(good, ["a", "b"] * 5000, [f"text {i}" for i in range(10_000)], pa.string())
    raw = good.read_bytes()
    directory.mkdir(exist_ok=True)
    (directory / "10-truncated.parquet").write_bytes(raw[: len(raw) // 2])
    (directory / "11-zero-bytes.parquet").write_bytes(b"")
    (directory / "12-no-parquet.parquet").write_bytes(b"PAR1 but nothing like it" * 10)
    write(directory / "13-numbers.parquet", ["a"], [1], pa.int64())
    pq.write_table(pa.table({"id": ["a"], "content": ["text"]}), directory / "14-other-columns.parquet")
    write(directory / "15-lists.parquet", ["a"], [["text"]], pa.list_(pa.string()))
    return {
        "10-truncated": "not a readable Parquet file",
        "11-zero-bytes": "not a readable Parquet file",
        "12-no-parquet": "not a readable Parquet file",
        "13-numbers": "column 'text' holds int64, not text",
        "14-other-columns": "no column 'text'",
        "15-lists": "column 'text' holds list",
    }


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    made = shardpiece.train_bpe(
        shardpiece.WordTable.from_texts([t or "" for t in TEXTS], "gpt2"), 400, special_tokens=["<|endoftext|>"]
    )
    path = tmp_path_factory.mktemp("tokenizer") / "t"
    artifact.save(made, str(path))
    return str(path)


def config(corpus, output, tokenizer, **more):
    settings = {"input": [str(corpus)], "output": str(output), "id_column": "id", "encode.tokenizer": tokenizer,
                "encode.shard_size": "1MiB", "encode.append_eos": True}  # fmt: skip
    return load_config(None, settings | {key.replace("__", "."): value for key, value in more.items()})


def check(config, tokenizer: str, rows: list[tuple[str, str | None]]) -> None:
    """Every row is there once, in order, and decodes to its text; the statistics say what it was."""
    load = shardpiece.load(tokenizer)
    manifest = read_manifest(config.shards_path)
    for (name, text), row in zip(rows, iter_rows(config.shards_path, manifest), strict=True):
        # In pieces: a list of a hundred million tokens is no part of this test.
        tokens = row.tokens[:-1]
        raw = b"".join(load.decode_bytes(tokens[i : i + 1_000_000]) for i in range(0, len(tokens), 1_000_000))
        assert (row.id, row.tokens[-1], raw == (text or "").encode()) == (name, load.special_id("<|endoftext|>"), True)
    totals = manifest["totals"]
    assert totals["documents"] == len(rows)
    assert totals["null_documents"] == sum(text is None for _, text in rows)
    assert totals["empty_documents"] == sum(text == "" for _, text in rows)
    assert totals["replaced_documents"] == len(INVALID) - 2
    assert totals["bytes"] == sum(len((text or "").encode()) for _, text in rows)


@pytest.mark.parametrize("sizes", [(1 << 20, 500_000, 10_000), pytest.param((200 << 20, 5 << 20, 100_000), marks=pytest.mark.slow)],
                         ids=["small", "200 MB document, 5 MB word"])  # fmt: skip
def test_awkward_documents_are_all_encoded_and_counted(session, tokenizer, tmp_path, sizes):
    rows = write_hostile(tmp_path / "corpus", *sizes)
    job = config(tmp_path / "corpus", tmp_path / "out", tokenizer)
    encode(session, job)
    check(job, tokenizer, rows)
    count(session, job)
    statistics = json.loads((tmp_path / "out" / "words" / "words.json").read_text())["statistics"]
    assert statistics["documents"] == len(rows)
    assert statistics["bytes"] == sum(len((text or "").encode()) for _, text in rows)
    assert statistics["long_words"] == 2
    assert statistics["special_tokens"] == sum((text or "").count("<|endoftext|>") for _, text in rows)


def test_invalid_utf8_is_refused_by_row_when_asked(session, tokenizer, tmp_path):
    write(tmp_path / "corpus" / "a.parquet", ["0", "1", "2"], [b"fine", b"fine", b"\xff"], pa.binary())
    with pytest.raises(DataError, match=r"a\.parquet, row 2: "):
        encode(session, config(tmp_path / "corpus", tmp_path / "out", tokenizer, invalid_utf8="error"))
    assert not (tmp_path / "out" / "shards" / "manifest.json").exists()


def test_each_broken_file_is_refused_by_name(session, tokenizer, tmp_path):
    problems = write_broken(tmp_path / "broken")
    for name, said in problems.items():
        corpus = tmp_path / name
        write_hostile_part(corpus)
        (tmp_path / "broken" / f"{name}.parquet").rename(corpus / f"{name}.parquet")
        for stage in (encode, count):
            with pytest.raises(InputError) as error:
                stage(session, config(corpus, tmp_path / f"{name}-out", tokenizer))
            assert f"{name}.parquet" in str(error.value)
            assert said in str(error.value)
    assert not list(tmp_path.glob("*-out/*"))


def test_damage_inside_a_file_is_refused_by_file_and_row(session, tokenizer, tmp_path):
    """The footer is whole, so the plan cannot know."""
    path = tmp_path / "corpus" / "a.parquet"
    write(path, [str(i) for i in range(4000)], [f"text number {i} " * 20 for i in range(4000)], pa.string(),
          row_group_size=1000, compression="zstd")  # fmt: skip
    raw = bytearray(path.read_bytes())
    middle = pq.read_metadata(path).row_group(2).column(1).data_page_offset
    raw[middle + 60 : middle + 400] = bytes(340)
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet behind row 1999"):
        encode(session, config(tmp_path / "corpus", tmp_path / "out", tokenizer))
    assert not (tmp_path / "out" / "shards" / "manifest.json").exists()


def write_hostile_part(corpus) -> list[tuple[str, str]]:
    write(corpus / "00-good.parquet", ["a", "b"], ["text one", "text two"], pa.string())
    return [("a", "text one"), ("b", "text two")]


def test_broken_files_are_skipped_when_asked(session, tokenizer, tmp_path):
    rows = write_hostile_part(tmp_path / "corpus")
    problems = write_broken(tmp_path / "corpus")
    job = config(tmp_path / "corpus", tmp_path / "out", tokenizer, bad_files="skip")
    encode(session, job)
    found = [(name, raw.decode()) for name, _, raw in decoded_documents(job.shards_path, shardpiece.load(tokenizer))]
    assert found == rows
    manifest = json.loads((tmp_path / "out" / "shards" / "manifest.json").read_text())
    assert all(name in json.dumps(manifest) for name in problems), "the manifest says what was left out"


def test_a_file_without_permission_is_refused_by_name(tmp_path):
    """As a user without rights: root reads everything, so the input is planned by a process that has given them up."""
    write_hostile_part(tmp_path / "corpus")
    secret = tmp_path / "corpus" / "01-secret.parquet"
    write(secret, ["c"], ["text"], pa.string())
    secret.chmod(0)
    for path in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and path.stat().st_uid == 0 and str(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o055)
    script = (
        "import os\n"
        "from shardpiece.config import load_config\n"
        "from shardpiece.corpus.base import Columns\n"
        "from shardpiece.errors import InputError\n"
        "from shardpiece.pipeline.inputs import plan_job\n"
        f"config = load_config(None, {{'input': [{str(tmp_path / 'corpus')!r}], 'output': '/nowhere'}})\n"
        "if os.geteuid() == 0:\n"
        "    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try:\n"
        "    plan_job(config, Columns('text'))\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(secret) in done.stdout
    assert "Permission denied" in done.stdout
