"""The lock of an output directory, with real processes that hold it and are killed."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest

from shardpiece import lock, storage
from shardpiece.errors import OutputError

_HOLD = """
import sys, time
from shardpiece.lock import locked
with locked(sys.argv[1], "encode"):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def other_process(directory: str):
    """A process that holds the lock of ``directory``."""
    process = subprocess.Popen([sys.executable, "-c", _HOLD, directory], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def put(directory, **changes) -> lock.Holder:
    """Leave a lock there, of this process unless ``changes`` say otherwise."""
    holder = replace(lock.Holder.this_process("encode"), **changes)
    storage.write_bytes(storage.join(str(directory), lock.LOCK), storage.pretty_json(asdict(holder)))
    return holder


def test_a_second_run_is_refused_and_a_killed_one_taken_over_at_once(tmp_path):
    directory = str(tmp_path / "out")
    with other_process(directory) as process:
        with pytest.raises(OutputError) as refused, lock.locked(directory, "encode"):
            pass
        message = str(refused.value)
        assert f"in use by encode, process {process.pid} on " in message
        assert f"shardpiece clean {directory} --break-lock" in message
        process.kill()  # not yet waited for: a zombie
        deadline = time.monotonic() + 10
        while not lock.read_lock(directory).gone:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with lock.locked(directory, "encode") as mine:
            mine.check()
            assert lock.read_lock(directory).pid == os.getpid()
    assert not (tmp_path / "out").exists()


def test_a_lock_says_nothing_of_a_credential(tmp_path):
    with lock.locked(str(tmp_path), "encode"):
        said = json.loads((tmp_path / lock.LOCK).read_text())
    assert set(said) == {"what", "host", "machine", "pid", "process_started", "token", "since", "heartbeat"}


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_lock_of_another_machine_counts_until_its_heartbeat_is_old(place, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_SETTLE_SECONDS", 0.01)
    directory = str(tmp_path) if place == "local" else f"memory://{tmp_path.name}"
    elsewhere = {"machine": "elsewhere", "host": "node-7", "pid": 1, "process_started": "1"}
    put(directory, **elsewhere, heartbeat=time.time() - lock.STALE_SECONDS + 60)
    with pytest.raises(OutputError, match="process 1 on node-7"), lock.locked(directory, "encode"):
        pass
    put(directory, **elsewhere, heartbeat=time.time() - lock.STALE_SECONDS - 1)
    with lock.locked(directory, "encode"):
        assert lock.read_lock(directory).host != "node-7"
    assert lock.read_lock(directory) is None


def test_a_process_id_that_came_again_is_another_process(tmp_path):
    put(tmp_path, process_started="1")
    with lock.locked(str(tmp_path), "encode"):
        pass


def test_a_run_whose_lock_was_taken_over_finds_out_and_leaves_it_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.01)
    with lock.locked(str(tmp_path), "encode") as mine:
        mine.check()
        other = put(tmp_path, token="other", host="node-7", machine="elsewhere")
        time.sleep(0.1)
        assert lock.read_lock(str(tmp_path)) == other  # no heartbeat of ours into it
        with pytest.raises(OutputError, match="taken over or broken by encode, process"):
            mine.check()
    assert lock.read_lock(str(tmp_path)) == other


def test_heartbeats(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.01)
    with lock.locked(str(tmp_path), "encode") as mine:
        first = lock.read_lock(str(tmp_path))
        deadline = time.monotonic() + 10
        while (beat := lock.read_lock(str(tmp_path))).heartbeat == first.heartbeat:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert replace(beat, heartbeat=0) == replace(first, heartbeat=0)
        mine.check()


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("left", [False, True])
def test_one_of_many_at_once_gets_it(tmp_path, monkeypatch, links, left):
    """The same when all of them find the lock of a process that has ended."""

    def no_links(source, target):
        raise OSError("no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    for _ in range(5):
        if left:
            put(tmp_path, process_started="1")
        # Threads of one process: each has a token of its own.
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: _try(str(tmp_path)), range(8)))
        won = [found for found in results if isinstance(found, lock.Holder)]
        assert len(won) == 1
        assert all("in use by encode" in str(found) for found in results if found not in won)
        assert lock.read_lock(str(tmp_path)) == won[0]
        assert storage.list_names(str(tmp_path)) == [lock.LOCK]
        lock.break_lock(str(tmp_path))


def _try(directory: str) -> lock.Holder | OutputError:
    holder = lock.Holder.this_process("encode")
    try:
        lock._acquire(directory, holder)
    except OutputError as refused:
        return refused
    return holder


def test_a_damaged_lock_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_ATTEMPTS", 2)
    (tmp_path / lock.LOCK).write_text("{")
    with pytest.raises(OutputError, match=r"_lock.json: damaged\. If no run writes there: .*--break-lock"):
        lock._acquire(str(tmp_path), lock.Holder.this_process("encode"))
    lock.break_lock(str(tmp_path))
    with lock.locked(str(tmp_path), "encode"):
        pass
