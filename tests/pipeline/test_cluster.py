"""A real standalone cluster on this machine: a master, two workers, spark-submit, and the same bytes as local[2]."""

import json
import runpy
import subprocess
import sys

import pytest

import shardpiece
from tests.cluster import Cluster
from tests.commands import called
from tests.conftest import ROOT
from tests.pipeline.test_stages import config_for, contents, run_stages


def without_parts(manifest: bytes) -> dict:
    return {key: value for key, value in json.loads(manifest).items() if key != "files"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def test_one_core_two_cores_and_a_cluster_write_the_same_bytes(cluster, session, corpus, tmp_path):
    # Sampled by seed, epoch and document id; the runs begin with the words of their own tables, this one with none.
    local = config_for(
        corpus, tmp_path / "local2", encode__append_eos=True, encode__sampling={"dropout": 0.1, "seed": 5}
    )
    run_stages(session, local)
    path = tmp_path / "job.yaml"
    job = {
        "input": [str(corpus)],
        "id_column": "id",
        "group_column": "lang",
        "train": {"vocab_size": 400},
        "encode": {"append_eos": True, "shard_size": "1MiB", "sampling": {"dropout": 0.1, "seed": 5}},
        "count": {"task_size": "1MiB", "memory_per_task": "1MiB"},
    }
    path.write_text(json.dumps(job))
    done = cluster.submit("run_pipeline.py", str(path), "--output", str(tmp_path / "cluster"))
    assert done.returncode == 0, done.stderr
    alone = [sys.executable, "-m", "shardpiece.cli", "run", str(path), "--master", "local[1]"]
    alone += ["--set", "spark.spark.sql.shuffle.partitions=5", "--output", str(tmp_path / "local1")]
    done = subprocess.run(alone, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("shardpiece: ") for line in done.stderr.splitlines()), done.stderr

    expected = contents(tmp_path / "local2")
    assert json.loads(expected["shards/manifest.json"])["sampling"]["dropout"] == 0.1
    table = shardpiece.WordTable.read(str(tmp_path / "local2" / "words")).table.combine_chunks()
    for run in ("cluster", "local1"):
        files = contents(tmp_path / run)
        # words.json lists the parts, whose borders are Spark's choice; the rows are compared instead.
        assert set(files) == set(expected)
        assert without_parts(files.pop("words/words.json")) == without_parts(expected["words/words.json"])
        assert files == {name: data for name, data in expected.items() if name != "words/words.json"}
        assert shardpiece.WordTable.read(str(tmp_path / run / "words")).table.combine_chunks() == table


def test_stage_jobs_one_by_one(corpus, tmp_path, commands_share_the_session, monkeypatch):
    def run(job: str, *arguments) -> None:
        monkeypatch.setattr(sys, "argv", [job, *map(str, arguments)])
        done = called(lambda: runpy.run_path(str(ROOT / "jobs" / job), run_name="__main__"))
        assert done.returncode == 0, done.stderr

    run("count_words.py", "--input", corpus, "--output", tmp_path / "words")
    run("train_tokenizer.py", "--words", tmp_path / "words", "--vocab-size", 400, "--output", tmp_path / "tokenizer")
    run("encode_corpus.py", "--input", corpus, "--tokenizer", tmp_path / "tokenizer", "--output", tmp_path / "shards")
    assert json.loads((tmp_path / "shards" / "manifest.json").read_text())["totals"]["documents"] == 240


def test_a_users_mistake_is_one_line_under_spark_submit_too(cluster, tmp_path):
    arguments = ("--input", str(tmp_path / "*.parquet"), "--output", str(tmp_path / "out"))
    done = cluster.submit("count_words.py", *arguments, master="local[1]")
    assert done.returncode == 2
    # spark-submit merges the two streams of a Python driver into its standard output.
    said = [line for line in done.stdout.splitlines() if line.startswith("shardpiece")]
    assert len(said) == 1
    assert said[0].startswith(f"shardpiece: error: {tmp_path}/*.parquet: no Parquet, JSON")
    assert "Traceback" not in done.stdout + done.stderr
