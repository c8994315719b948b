"""The whole job from and to an S3 endpoint over HTTP."""

import os
import socket
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest

import shardpiece
from shardpiece import storage
from shardpiece.corpus.sources import list_files
from shardpiece.errors import InputError
from shardpiece.shards.builder import ShardBuilder, ShardLayout
from shardpiece.shards.formats.base import ShardSpec, TokenBatch
from shardpiece.tokenizer.shard_decoding import decoded_documents
from tests.conftest import corpus_rows, environment, input_rows, write_corpus

pytest.importorskip("s3fs", reason="needs the s3 extra")
pytest.importorskip("moto", reason="needs moto's server")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """s3://corpora on moto's server; the endpoint and credentials come from the environment, as for a user."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as file:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                                  stdout=file, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        for _ in range(150):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        with environment(AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_ACCESS_KEY_ID="key-of-test",
                         AWS_SECRET_ACCESS_KEY="secret-of-test", AWS_DEFAULT_REGION="us-east-1"):  # fmt: skip
            fs, _ = storage.filesystem("s3://corpora")
            fs.mkdir("corpora")
            yield "s3://corpora"
    finally:
        server.terminate()
        server.wait(20)


def test_from_and_to_s3(bucket, tmp_path):
    # A Spark session of its own: its executors must see the endpoint.
    local = write_corpus(tmp_path / "data", corpus_rows(5))
    fs, inner = storage.filesystem(f"{bucket}/data")
    fs.put(str(local), inner, recursive=True)
    job = tmp_path / "job.yaml"
    job.write_text(
        f"master: local[2]\ninput: ['{bucket}/data/*.parquet']\nid_column: id\noutput: {bucket}/out\n"
        "train: {vocab_size: 400}\n"
    )
    command = [sys.executable, "-m", "shardpiece.cli", "run", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    fs.invalidate_cache()
    tokenizer = shardpiece.load(f"{bucket}/out/tokenizer")
    decoded = [(name, raw.decode()) for name, _, raw in decoded_documents(f"{bucket}/out/shards", tokenizer)]
    assert decoded == [(row["id"], row["text"] or "") for row in input_rows(local)]
    manifest = storage.read_bytes(f"{bucket}/out/shards/manifest.json").decode()
    assert "secret-of-test" not in manifest + done.stderr + done.stdout
    assert "key-of-test" not in manifest + done.stderr + done.stdout
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
