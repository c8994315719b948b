"""The whole job from and to an S3 endpoint over HTTP."""

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece import lock, object_store, storage
from shardpiece.corpus.sources import list_files
from shardpiece.errors import InputError, OutputError
from shardpiece.shards.builder import ShardBuilder, ShardLayout
from shardpiece.shards.formats.base import ShardSpec, TokenBatch
from shardpiece.shards.manifest import files_of, read_manifest
from shardpiece.tokenizer.shard_decoding import decoded_documents
from tests.conftest import corpus_rows, input_rows, write_corpus
from tests.s3 import KEY, SECRET, Cut, Proxy, credentials, moto_server

pytest.importorskip("s3fs", reason="needs the s3 extra")
pytest.importorskip("moto", reason="needs moto's server")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """s3://corpora on moto's server; the endpoint and credentials come from the environment, as for a user."""
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as port, credentials(port):
        fs, _ = storage.filesystem("s3://corpora")
        fs.mkdir("corpora")
        yield "s3://corpora"


@pytest.fixture
def small_parts(monkeypatch):
    """Of the least size that S3 takes."""
    monkeypatch.setattr(object_store, "PART_BYTES", 5 << 20)


@pytest.fixture
def cut(bucket, small_parts):
    """A function that puts a proxy with such cuts between s3fs and the server, for the rest of the test."""
    with contextlib.ExitStack() as stack:

        def through(*cuts: Cut) -> Proxy:
            port = int(os.environ["AWS_ENDPOINT_URL"].rsplit(":", 1)[1])
            proxy = stack.enter_context(Proxy(port, list(cuts)))
            stack.enter_context(credentials(proxy.port))
            stack.callback(storage.filesystem(bucket)[0].clear_instance_cache)
            storage.filesystem(bucket)[0].clear_instance_cache()
            return proxy

        yield through


def uploads(bucket: str) -> list[str]:
    """Keys of the uploads that are neither completed nor aborted."""
    fs, inner = storage.filesystem(bucket)
    return [upload["Key"] for upload in fs.call_s3("list_multipart_uploads", Bucket=inner).get("Uploads", [])]


def test_from_and_to_s3(bucket, tmp_path):
    # A Spark session of its own: its executors must see the endpoint.
    local = write_corpus(tmp_path / "data", corpus_rows(5))
    fs, inner = storage.filesystem(f"{bucket}/data")
    # JSON Lines and Arrow beside Parquet: what one of the files holds, in other words.
    rows = input_rows(local)
    names = sorted(path.name for path in local.glob("*.parquet"))
    table = pq.read_table(local / names[1])
    (local / names[1]).with_suffix(".jsonl.gz").write_bytes(
        gzip.compress("\n".join(json.dumps(row) for row in table.to_pylist()).encode())
    )
    with pa.ipc.new_file(str((local / names[2]).with_suffix(".arrow")), table.schema) as writer:
        writer.write_table(pq.read_table(local / names[2]), max_chunksize=20)
    for name in names[1:]:
        (local / name).unlink()
    fs.put(str(local), inner, recursive=True)
    job = tmp_path / "job.yaml"
    job.write_text(
        f"master: local[2]\ninput: ['{bucket}/data']\nid_column: id\noutput: {bucket}/out\ntrain: {{vocab_size: 400}}\n"
    )
    command = [sys.executable, "-m", "shardpiece.cli", "run", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    fs.invalidate_cache()
    tokenizer = shardpiece.load(f"{bucket}/out/tokenizer")
    decoded = [(name, raw.decode()) for name, _, raw in decoded_documents(f"{bucket}/out/shards", tokenizer)]
    assert decoded == [(row["id"], row["text"] or "") for row in rows]
    no_credentials(f"{bucket}/out", done.stdout, done.stderr)
    again = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert again.stdout.count("skipped: done and unchanged") == 3, again.stderr
    with pytest.raises(InputError, match="file matches"):
        list_files([f"{bucket}/nothing/*.parquet"])


def test_a_write_that_fails_publishes_nothing(bucket):
    """Closing an upload completes it, also when an exception closes it: a good object must stay."""
    path = f"{bucket}/atomic/object.bin"
    storage.write_bytes(path, b"good")

    def fail(file):
        file.write(b"x" * (12 << 20))  # more than one part
        raise RuntimeError("cut")

    with pytest.raises(RuntimeError):
        storage.write_file(path, fail)
    with pytest.raises(RuntimeError):
        storage.write_file(f"{bucket}/atomic/new.bin", fail)
    assert storage.read_bytes(path) == b"good"
    assert storage.list_names(f"{bucket}/atomic") == ["object.bin"]
    storage.write_file(path, lambda file: file.write(b"y" * (12 << 20)))
    assert storage.read_bytes(path) == b"y" * (12 << 20)


PART = re.escape("PUT /corpora/cut/object.bin?") + ".*partNumber="
COMPLETE = re.escape("POST /corpora/cut/object.bin?uploadId=")


@pytest.mark.parametrize(
    "cuts",
    [
        [Cut(PART, 1, sent=100_000)],
        pytest.param([Cut(PART, 2, sent=0)], marks=pytest.mark.slow),
        pytest.param([Cut(PART, 2, answer=True)], marks=pytest.mark.slow),
        pytest.param([Cut(COMPLETE, 2, sent=0)], marks=pytest.mark.slow),
        [Cut(COMPLETE, 1, answer=True)],
    ],
    ids=["in a part", "before a part", "after a part", "before the end", "after the end"],
)
def test_an_upload_that_is_cut_is_sent_again(bucket, cut, cuts):
    cut(*cuts)
    data = os.urandom(6 << 20)  # two parts
    storage.write_file(f"{bucket}/cut/object.bin", lambda file: file.write(data))
    assert all(c.done == c.times for c in cuts)
    assert storage.read_bytes(f"{bucket}/cut/object.bin") == data
    assert uploads(bucket) == []


@pytest.mark.slow
def test_a_connection_that_stays_cut_leaves_nothing(bucket, cut):
    storage.write_bytes(f"{bucket}/cut/object.bin", b"older")
    cut(Cut(PART, 1000, sent=100_000))
    with pytest.raises(OutputError, match=r"s3://corpora/cut/object\.bin: cannot be written"):
        storage.write_file(f"{bucket}/cut/object.bin", lambda file: file.write(b"x" * (6 << 20)))
    assert storage.read_bytes(f"{bucket}/cut/object.bin") == b"older"
    assert uploads(bucket) == []


def test_a_lost_answer_is_no_success_where_another_object_lies(bucket, small_parts):
    """The upload is gone and an object of the same size is there, but not this one."""
    path = f"{bucket}/cut/object.bin"
    storage.write_bytes(path, b"a" * (5 << 20))
    file = storage.StagedFile(path)
    file.write(b"b" * (5 << 20))
    assert storage.abort_uploads(f"{bucket}/cut", r"object\.bin") == 1
    with pytest.raises(OutputError):
        file.commit()
    file.discard()
    assert storage.read_bytes(path) == b"a" * (5 << 20)


def test_uploads_of_killed_processes_are_aborted(bucket):
    for name in ("shard-00000.bin", "notes.txt"):
        storage.filesystem(bucket)[0].call_s3("create_multipart_upload", Bucket="corpora", Key=f"left/{name}")
    assert storage.abort_uploads(f"{bucket}/left", r"shard-\d+\.bin") == 1
    assert uploads(bucket) == ["left/notes.txt"]
    storage.abort_uploads(f"{bucket}/left", r".*")
    assert uploads(bucket) == []


def test_locks_are_conditional(bucket):
    directory = f"{bucket}/locked"
    with lock.locked(directory, "encode") as mine:
        mine.check()
        with pytest.raises(OutputError, match="in use by encode, process"), lock.locked(directory, "encode"):
            pass
        holder = lock.read_lock(directory)
        assert not lock._change(f"{directory}/{lock.LOCK}", "another token", None)
        assert lock._change(f"{directory}/{lock.LOCK}", holder.token, replace(holder, heartbeat=1.0))
        assert lock.read_lock(directory).heartbeat == 1.0
        assert storage.list_names(directory) == [lock.LOCK]
    assert lock.read_lock(directory) is None
    gone = replace(holder, machine="elsewhere", heartbeat=0.0)
    storage.write_bytes(f"{directory}/{lock.LOCK}", storage.pretty_json(asdict(gone)))
    fs, inner = storage.filesystem(f"{directory}/{lock.LOCK}")
    seen = fs.info(inner)["ETag"]
    with lock.locked(directory, "encode"):
        # Whoever judged the same old lock, a moment too late:
        with pytest.raises(OSError, match="pre-conditions") as late:
            fs.pipe_file(inner, b"{}", IfMatch=seen)
        assert lock._lost_race(late.value)


@pytest.mark.slow
def test_a_job_whose_uploads_are_cut(bucket, cut, tmp_path):
    """Every kind of request is cut some times; nothing of it is to be seen in the end."""
    local = write_corpus(tmp_path / "data", corpus_rows(200))
    fs, inner = storage.filesystem(f"{bucket}/data-cut")
    fs.put(str(local), inner, recursive=True)
    cuts = [
        Cut(r"PUT /corpora/cut-out/words/part", 2, sent=300),
        Cut(r"PUT /corpora/cut-out/shards/\w+/shard-\d+\.(bin|parquet)", 2, sent=20_000),
        Cut(r"PUT /corpora/cut-out/shards/.*shard", 2, answer=True),
        Cut(r"POST /corpora/cut-out/shards/.*uploadId", 2, answer=True),
        Cut(r"PUT /corpora/cut-out/shards/_journal", 1, sent=10),
        Cut(r"PUT /corpora/cut-out/shards/manifest", 1, answer=True),
        Cut(r"GET /corpora/data-cut/", 3, sent=0),
    ]
    cut(*cuts)
    job = tmp_path / "job.yaml"
    job.write_text(
        f"master: local[2]\ninput: ['{bucket}/data-cut/*.parquet']\nid_column: id\noutput: {bucket}/cut-out\n"
        "train: {vocab_size: 400}\nencode: {format: [parquet, bin], shard_size: 1MiB}\n"
    )
    command = [sys.executable, "-m", "shardpiece.cli", "run", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert [c.done for c in cuts] == [c.times for c in cuts]
    manifest = read_manifest(f"{bucket}/cut-out/shards")
    listed = {file["name"]: file["checksum"] for file in files_of(manifest)}
    assert {name: storage.checksum(f"{bucket}/cut-out/shards/{name}") for name in listed} == listed
    assert uploads(bucket) == []
    tokenizer = shardpiece.load(f"{bucket}/cut-out/tokenizer")
    decoded = [(name, raw.decode()) for name, _, raw in decoded_documents(f"{bucket}/cut-out/shards", tokenizer)]
    assert decoded == [(row["id"], row["text"] or "") for row in input_rows(local)]
    no_credentials(f"{bucket}/cut-out", done.stdout, done.stderr)


def no_credentials(directory: str, *said: str) -> None:
    """In no file below the directory, journal and lock among them, and in nothing that was said."""
    fs, inner = storage.filesystem(directory)
    found = [fs.cat_file(name) for name in fs.find(inner)]
    assert found
    for data in (*found, *(text.encode() for text in said)):
        assert KEY.encode() not in data
        assert SECRET.encode() not in data


def test_a_failing_shard_leaves_the_finished_one(bucket):
    directory = f"{bucket}/shards-once"
    batch = TokenBatch(np.array([1, 2], np.int32), np.array([0, 2]), pa.array(["a"]))
    layout = ShardLayout(("parquet",), ShardSpec(300))
    builder = ShardBuilder(directory, "shard-00000", layout)
    builder.add(batch)
    [file] = builder.finish()["files"]
    again = ShardBuilder(directory, "shard-00000", layout)
    again.add(batch)
    again.discard()  # the input went away
    assert storage.checksum(f"{directory}/{file['name']}") == file["checksum"]


def test_markers_of_directories_are_not_content(bucket):
    fs, inner = storage.filesystem(f"{bucket}/folder/")
    fs.pipe_file(f"{inner.rstrip('/')}/", b"")
    assert storage.list_names(f"{bucket}/folder") == []


def test_credentials_that_are_missing_are_one_line(tmp_path):
    environment_without = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    environment_without |= {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "shardpiece.cli", "count", "--input", "s3://nothing/*.parquet", "--output",
               str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment_without, check=False)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("shardpiece: error: ")
    assert len(done.stderr.splitlines()) == 1
