"""What --dry-run says is what the run then does; until then nothing is touched."""

import re
import time

import pytest
from click.testing import CliRunner

import shardpiece
from shardpiece import storage
from shardpiece.cli import cli
from shardpiece.config import load_config
from shardpiece.pipeline.dry_run import estimated
from shardpiece.pipeline.encode.stage import encode, plan_encode
from tests.conftest import TEXTS, corpus_rows, write_corpus


@pytest.fixture
def job(tmp_path):
    write_corpus(tmp_path / "corpus", corpus_rows(6), files=3, row_group_size=11)
    words = shardpiece.WordTable.from_texts([text or "" for text in TEXTS], "gpt2")
    shardpiece.save(shardpiece.train_bpe(words, 300, special_tokens=["<|endoftext|>"]), str(tmp_path / "tokenizer"))
    return {
        "input": [str(tmp_path / "corpus")], "id_column": "id", "encode.tokenizer": str(tmp_path / "tokenizer"),
        "encode.output": str(tmp_path / "shards"), "encode.format": ["bin", "parquet"], "encode.incremental": True,
        "encode.append_eos": True,
    }  # fmt: skip


def dry(job, *more) -> list[str]:
    arguments = [f"--set={key}={value}" for key, value in job.items() if key != "input"]
    done = CliRunner().invoke(cli, ["encode", "--input", *job["input"], *arguments, "--dry-run", *more])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_encode(session, job, tmp_path, monkeypatch):
    session()  # the suite's, which is not to start while a plan is made
    monkeypatch.setattr("shardpiece.pipeline.session._start", lambda *_: pytest.fail("Spark was started"))
    before = storage.tree(str(tmp_path))
    said = "\n".join(dry(job))
    assert storage.tree(str(tmp_path)) == before
    assert not (tmp_path / "shards").exists()
    assert f"encode: 3 files, {len(corpus_rows(6))} documents in " in said
    assert "1 shards, shard-00000 to shard-00000, of bin, parquet" in said
    assert f"into {tmp_path}/shards (new)" in said
    assert "are free there" in said
    config = load_config(None, job)
    estimate = estimated(plan_encode(config))
    report = encode(session, config)
    assert estimate.tokens == pytest.approx(report.figures["tokens"], rel=0.1)
    sizes = storage.tree(str(tmp_path / "shards"))
    for name in ("bin", "parquet"):
        written = sum(size for file, size in sizes.items() if file.startswith(f"{name}/"))
        assert estimate.bytes[name] == pytest.approx(written, rel=0.2)
    assert re.search(r"encode: nothing new: all 3 files are in .*: nothing to do", "\n".join(dry(job)))
    write_corpus(tmp_path / "corpus" / "more", corpus_rows(1), files=1)
    said = "\n".join(dry(job))
    assert "1 files, 12 documents in 1 splits" in said
    assert "beside 3 files that are in the shards already" in said
    assert "shard-00001 to shard-00001" in said
    assert "(is added to)" in said


def test_no_room_and_another_run(job, tmp_path, monkeypatch):
    usage = type("usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with shardpiece.lock.locked(str(tmp_path / "shards"), "encode"):
        said = "\n".join(dry(job))
    assert "10 bytes are free there: NOT ENOUGH" in said
    assert "in use by encode, process" in said


def test_a_whole_run_and_its_errors(job, tmp_path):
    (tmp_path / "job.yaml").write_text(
        f"input: [{tmp_path}/corpus]\noutput: {tmp_path}/out\ntrain: {{vocab_size: 400}}\n"
    )
    began = time.monotonic()
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "job.yaml"), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert time.monotonic() - began < 20
    for part in ("count: 3 files", "train: bpe with 400 tokens from", "encode: the tokenizer is still to come: about",
                 "dry run: nothing was done"):  # fmt: skip
        assert part in done.output
    assert not (tmp_path / "out").exists()
    count = CliRunner().invoke(cli, ["count", "--input", f"{tmp_path}/none-*.parquet", "--output", "x", "--dry-run"])
    assert count.exception.exit_code == 2
