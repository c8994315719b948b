"""Scheduled runs: each adds what is new, and all of them together are one run over everything."""

import json
import shutil
from functools import partial

import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.config import load_config
from shardpiece.errors import InputError, OutputError
from shardpiece.pipeline.encode.stage import encode
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.verify import verify
from shardpiece.shards.manifest import read_manifest
from shardpiece.shards.statistics import summed
from shardpiece.tokenizer.shard_decoding import decoded_documents
from tests.conftest import TEXTS, corpus_rows, write_corpus

DAYS = 10


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("increments") / "tokenizer")
    words = shardpiece.WordTable.from_texts([text or "" for text in TEXTS], "gpt2")
    shardpiece.save(shardpiece.train_bpe(words, 300, special_tokens=["<|endoftext|>"]), path)
    return path


@pytest.fixture
def drops(tmp_path):
    """A function that puts the files of a day into the corpus."""

    def drop(day: int):
        rows = [{**row, "id": f"{day}/{row['id']}"} for row in corpus_rows(1 + day % 2)]
        write_corpus(tmp_path / "corpus" / f"day-{day:02}", rows, files=1 + day % 2, row_group_size=9)

    return drop


def settings(tmp_path, tokenizer, output="shards", **more):
    return load_config(None, {
        "input": [str(tmp_path / "corpus")], "id_column": "id", "group_column": "lang", "encode.tokenizer": tokenizer,
        "encode.output": str(tmp_path / output), "encode.format": ["bin", "parquet"], "encode.incremental": True,
        "encode.append_eos": True, **{key.replace("__", "."): value for key, value in more.items()},
    })  # fmt: skip


class Killed(BaseException):
    """Not an Exception: nothing tidies up after it."""


def killed_before_the_manifest(session, config, monkeypatch):
    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(OutputKind, "finish", die)
        with pytest.raises(Killed):
            encode(session, config)


def documents(directory, tokenizer):
    return list(decoded_documents(str(directory), shardpiece.load(tokenizer)))


def test_ten_daily_drops_are_one_run_over_everything(session, tokenizer, drops, tmp_path, monkeypatch, capfd):
    config = settings(tmp_path, tokenizer)
    shards = tmp_path / "shards"
    for day in range(DAYS):
        drops(day)
        before = (shards / "manifest.json").read_bytes() if day else None
        if day == 4:
            killed_before_the_manifest(session, config, monkeypatch)
            assert (shards / "manifest.json").read_bytes() == before  # readers still have what was finished
            [new] = [path.name for path in (shards / "bin").glob("*.bin")
                     if path.name.removesuffix(".bin") not in before.decode()]  # fmt: skip
            (shards / "bin" / new).write_bytes(b"half")
        if day == 7:  # killed, and more has come when it starts again
            killed_before_the_manifest(session, config, monkeypatch)
            drops(day + 100)
        encode(session, config)
        if day == 5:
            finished = (shards / "manifest.json").read_bytes()
            capfd.readouterr()
            assert encode(lambda: pytest.fail("Spark was started"), config).skipped
            assert "nothing new: all 9 files are in" in capfd.readouterr().err
            assert (shards / "manifest.json").read_bytes() == finished
        if before is not None:
            assert (
                json.loads((shards / "manifest.json").read_bytes())["shards"][: len(json.loads(before)["shards"])]
                == (json.loads(before)["shards"])
            )
    whole = settings(tmp_path, tokenizer, "whole", encode__incremental=False)
    encode(session, whole)
    assert sorted(documents(shards, tokenizer)) == sorted(documents(tmp_path / "whole", tokenizer))
    added, once = read_manifest(str(shards)), read_manifest(str(tmp_path / "whole"))
    assert added["totals"] == once["totals"]
    assert sorted(added["input"], key=lambda file: file["path"]) == once["input"]
    assert [increment["files"] for increment in added["increments"]] == [1, 2] * 3 + [1, 2 + 2, 1, 2]
    assert sum(increment["shards"] for increment in added["increments"]) == len(added["shards"])
    assert [shard["name"] for shard in added["shards"]] == [f"shard-{i:05}" for i in range(len(added["shards"]))]
    sums = [summed([str(tmp_path / at / file["name"]) for file in manifest["statistics"]], added["vocab_size"])
            for at, manifest in (("shards", added), ("whole", once))]  # fmt: skip
    assert sums[0].to_bytes() == sums[1].to_bytes()
    for at, manifest in (("shards", added), ("whole", once)):
        directory = str(tmp_path / at)
        done = verify(directory, shardpiece.load(tokenizer), [str(tmp_path / "corpus")])
        assert (done.problems, done.notes) == ([], [])
        assert done.compared == done.exact == done.documents == manifest["totals"]["documents"]
    listed = {file["name"] for shard in added["shards"] for file in shard["files"]}
    assert {str(path.relative_to(shards)) for path in shards.rglob("shard-*") if "_journal" not in path.parts} == listed
    assert not (shards / "_started.json").exists()
    assert not (shards / "_lock.json").exists()


def test_input_that_changed_or_is_gone_is_named(session, tokenizer, drops, tmp_path, capfd):
    config = settings(tmp_path, tokenizer)
    for day in range(3):
        drops(day)
    encode(session, config)
    first = tmp_path / "corpus" / "day-00" / "part-00000.parquet"
    shutil.rmtree(tmp_path / "corpus" / "day-02")
    pq.write_table(pq.read_table(first).slice(1), first)
    drops(3)
    none = partial(pytest.fail, "Spark was started")
    with pytest.raises(InputError, match=r"day-00/part-00000\.parquet: changed since it was encoded"):
        encode(none, config)
    drops(0)
    with pytest.raises(InputError, match=r"day-02/part-00000\.parquet: gone or has changed since"):
        encode(none, config)
    before = documents(tmp_path / "shards", tokenizer)
    capfd.readouterr()
    encode(session, settings(tmp_path, tokenizer, changed_input="ignore"))
    assert "day-02/part-00000.parquet: gone or has changed since it was encoded; ignored" in capfd.readouterr().err
    after = documents(tmp_path / "shards", tokenizer)
    assert after[: len(before)] == before
    assert len(after) == len(before) + len(corpus_rows(2))
    # A pattern that leaves out what was read before says nothing about it.
    (tmp_path / "corpus" / "day-02").mkdir()
    drops(2)
    drops(5)
    encode(session, settings(tmp_path, tokenizer, input=[str(tmp_path / "corpus" / "day-05")]))
    assert len(documents(tmp_path / "shards", tokenizer)) == len(after) + len(corpus_rows(2))


def test_other_settings_and_lost_shards_are_named(session, tokenizer, drops, tmp_path, monkeypatch):
    drops(0)
    config = settings(tmp_path, tokenizer)
    killed_before_the_manifest(session, config, monkeypatch)
    none = partial(pytest.fail, "Spark was started")
    other = settings(tmp_path, tokenizer, encode__empty_documents="skip", encode__append_eos=False)
    said = r'other settings \(around: {"after":\[299\],"before":\[\]} before, {"after":\[\],"before":\[\]} now; '
    for _ in range(2):
        with pytest.raises(OutputError, match=said + r'empty_documents: "keep" before, "skip" now\)'):
            encode(none, other)
        encode(session, config)
    drops(1)
    with pytest.raises(
        OutputError, match="Pass --overwrite to replace it, pass --incremental to add to it what of the input is new"
    ):
        encode(none, settings(tmp_path, tokenizer, encode__incremental=False))
    (tmp_path / "shards" / "bin" / "shard-00000.bin").unlink()
    with pytest.raises(OutputError, match=r"bin/shard-00000\.bin is missing or has another size .*--overwrite"):
        encode(none, config)
    encode(session, settings(tmp_path, tokenizer, overwrite=True))
    assert len(documents(tmp_path / "shards", tokenizer)) == len(corpus_rows(1)) + len(corpus_rows(2))
