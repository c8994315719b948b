"""Runs that lose nothing: killed drivers and executors, speculation, full disks, other partitionings; always the same bytes.

The short round runs in the suite; the others are slow. More rounds: ``python -m tests.restarts``.
"""

import json
import os
import random
import re
import subprocess
import time

import pytest

from tests.cluster import Cluster
from tests.restarts import (
    Attempt,
    assert_same,
    command,
    contents,
    finished_shards,
    is_worker,
    kill_one,
    run_round,
    undisturbed,
    verify,
    wait_for,
    write_job,
)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("restarts") / "job")


@pytest.fixture(scope="module")
def expected(job):
    return undisturbed(job, job.parent / "expected")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def test_a_killed_worker_and_a_killed_driver(tmp_path):
    """Few shards, one restart: what the slow rounds do at length."""
    job = write_job(tmp_path / "job", shards=6)
    output = tmp_path / "out"
    first = Attempt.start(command(job, output, "local[1,4]"), tmp_path / "log")
    assert wait_for(lambda: finished_shards(output) >= 1, first), first.log.read_text()
    assert kill_one(first, output, first.children(), is_worker, random.Random(1))
    assert wait_for(lambda: finished_shards(output) >= 3, first), first.log.read_text()
    first.kill()
    done_before = finished_shards(output)
    again = subprocess.run(command(job, output, "local[1,4]"), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    # What outlives the driver for a moment may finish what it is at.
    (kept,) = re.findall(r"(\d) of 6 shards were finished by an earlier run", again.stderr)
    assert int(kept) >= done_before
    assert not first.left()
    assert verify(job, output, contents(output)) > 100


@pytest.mark.slow
def test_a_killed_worker_without_retries_is_one_line(tmp_path):
    job = write_job(tmp_path / "job", shards=3, last_bytes=10_000_000)
    output = tmp_path / "out"
    attempt = Attempt.start(command(job, output, "local[1]"), tmp_path / "log")
    assert wait_for(lambda: finished_shards(output) >= 2, attempt), attempt.log.read_text()
    assert kill_one(attempt, output, attempt.children(), is_worker, random.Random(1))
    assert attempt.process.wait(100) == 1
    (said,) = [line for line in attempt.log.read_text().splitlines() if line.startswith("shardpiece: error: ")]
    assert "a worker process has died" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("master", "settings"),
    [
        ("local[1]", ()),
        ("local[2]", ("spark.spark.sql.execution.arrow.maxRecordsPerBatch=1", "spark.spark.sql.shuffle.partitions=3")),
        ("local[3]", ("spark.spark.python.worker.reuse=false",)),
    ],
)
def test_other_partitionings_write_the_same_bytes(job, expected, tmp_path, master, settings):
    assert_same(undisturbed(job, tmp_path / "out", master, *settings), expected)


@pytest.mark.slow
def test_a_cluster_writes_the_same_bytes(job, expected, tmp_path, cluster):
    assert_same(undisturbed(job, tmp_path / "out", cluster.url), expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_rounds_of_killed_python_workers_and_drivers(job, expected, tmp_path, seed):
    killed = run_round(job, tmp_path / "out", random.Random(seed), 3, None)
    assert killed["drivers"]
    assert killed["executors"]
    verify(job, tmp_path / "out", expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_rounds_of_killed_executors_and_drivers(job, expected, tmp_path, cluster, seed):
    killed = run_round(job, tmp_path / "out", random.Random(seed), 3, cluster)
    assert killed["drivers"]
    assert killed["executors"]
    verify(job, tmp_path / "out", expected)


@pytest.mark.slow
def test_speculation_runs_tasks_twice_and_writes_them_once(tmp_path, cluster):
    """The last shard is large, and the other worker has nothing else to do."""
    job = write_job(tmp_path / "job", shards=8, last_bytes=10_000_000)
    expected = undisturbed(job, tmp_path / "expected")
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "speculation": "true", "speculation.multiplier": "0.5", "speculation.quantile": "0.05", "speculation.interval": "10ms",
        "speculation.minTaskRuntime": "1ms", "eventLog.enabled": "true", "eventLog.compress": "false",
        "eventLog.dir": events.as_uri(),
    }  # fmt: skip
    done = undisturbed(job, tmp_path / "out", cluster.url, *(f"spark.spark.{k}={v}" for k, v in settings.items()))
    started = [
        json.loads(line)["Task Info"]
        for path in events.rglob("*")
        if path.is_file() and not path.name.startswith("appstatus")
        for line in path.read_text().splitlines()
        if '"SparkListenerTaskStart"' in line
    ]
    assert any(task["Speculative"] for task in started), "no task was started twice"
    assert_same(done, expected)
    time.sleep(3)  # a twin that was still at work could write after the end
    assert_same(contents(tmp_path / "out"), expected)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 MB; skips where mounting is not allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_and_has_space_again(job, expected, tmp_path, small_disk):
    output = small_disk / "out"
    filler = small_disk / "filler"
    size = sum(map(len, expected.values()))
    filler.write_bytes(b"x" * (16_000_000 - size // 2))
    full = subprocess.run(command(job, output, "local[2]"), capture_output=True, text=True, check=False)
    assert full.returncode in (1, 2)
    (said,) = [line for line in full.stderr.splitlines() if line.startswith("shardpiece: error: ")]
    assert str(output) in said
    assert "No space left on device" in said
    assert "Traceback" not in full.stderr
    left = contents(output)
    assert "manifest.json" not in left
    assert not [name for name in left if name.endswith(".tmp")]
    finished = finished_shards(output)
    assert 0 < finished < 30
    filler.unlink()
    again = subprocess.run(command(job, output, "local[2]"), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"{finished} of 30 shards were finished by an earlier run" in again.stderr
    verify(job, output, expected)


@pytest.mark.slow
def test_space_that_returns_while_the_job_is_retrying(job, expected, tmp_path, small_disk):
    """With retries, as on a cluster, the job goes on by itself."""
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (16_000_000 - sum(map(len, expected.values())) // 2))
    attempt = Attempt.start(command(job, small_disk / "out", "local[2,1000]"), tmp_path / "log")
    assert wait_for(lambda: os.statvfs(small_disk).f_bavail * 4096 < 300_000, attempt), attempt.log.read_text()
    time.sleep(2)
    assert attempt.running, attempt.log.read_text()
    filler.unlink()
    assert attempt.process.wait(240) == 0, attempt.log.read_text()
    verify(job, small_disk / "out", expected)
