"""Rounds of killed executors and killed drivers, each followed by a comparison with what nothing happened to.

    python -m tests.restarts [--rounds 20] [--seed 1] [--restarts 3] [--no-cluster] [--directory DIR]

A round encodes a corpus of some thirty shards. Its driver is killed (SIGKILL) ``--restarts`` times, each time when a number of
shards drawn from the seed is in the journal and a drawn moment later, and the job is started again at once, while what the
killed one left may still be running. Before each of these, and in the last attempt too, a Python worker, in every second round
the executor's JVM on a cluster of two workers, is killed while it works. The last attempt has to end well, and then the output is
compared with that of an undisturbed run, byte for byte, with the checksums of its manifest, and with the source, document for
document.
"""

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import shardpiece
from shardpiece import storage
from shardpiece.shards.manifest import read_manifest
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.shard_decoding import decoded_documents
from tests.cluster import Cluster
from tests.conftest import input_rows

SHARDS = 30
_SHARD_BYTES = 700_000  # two do not fit into a shard of 1 MiB
_PATIENCE = 400.0  # on a machine that has other things to do


def write_job(directory: Path, seed: int = 1, shards: int = SHARDS, last_bytes: int = _SHARD_BYTES) -> Path:
    """A corpus of one row group per shard and a tokenizer below ``directory``; null, empty and blank documents and text that
    spells the end-of-text token are among them. ``last_bytes``: text of the last shard."""
    generator = random.Random(seed)
    words = ["".join(generator.choices("aeioubcdfglmnprst", k=generator.randint(1, 9))) for _ in range(5000)]
    words += ["日本", "naïve", "<|endoftext|>", "\n\n", "👩‍👩‍👧"]
    weights = [1 / (i + 1) for i in range(len(words))]
    rows: list[list[dict]] = []
    for shard in range(shards):
        rows.append([])
        size = 0
        while size < (last_bytes if shard == shards - 1 else _SHARD_BYTES):
            kind = generator.random()
            text = None if kind < 0.01 else "" if kind < 0.02 else " " if kind < 0.03 else None
            if kind >= 0.03:
                text = " ".join(generator.choices(words, weights, k=generator.randint(1, 2000)))
            size += len((text or "").encode())
            rows[-1].append({"id": f"{shard}/{len(rows[-1])}", "text": text})
    (directory / "corpus").mkdir(parents=True)
    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    per_file = 5
    for file in range(0, shards, per_file):
        with pq.ParquetWriter(directory / "corpus" / f"part-{file // per_file:05}.parquet", schema) as writer:
            for group in rows[file : file + per_file]:
                writer.write_table(pa.Table.from_pylist(group, schema))
    texts = [row["text"] or "" for row in rows[0][:60]]
    tokenizer = shardpiece.train_bpe(
        shardpiece.WordTable.from_texts(texts, "gpt2"), 1000, special_tokens=["<|endoftext|>"]
    )
    artifact.save(tokenizer, str(directory / "tokenizer"))
    return directory


def command(job: Path, output: Path, master: str, *settings: str) -> list[str]:
    """The command that encodes a job's corpus; sampling by seed makes tasks long enough to be killed in."""
    given = ["encode.shard_size=1MiB", "encode.append_eos=true", "encode.sampling={dropout: 0.1, seed: 7}", "id_column=id",
             "spark.spark.executor.memory=700m", "spark.spark.driver.host=127.0.0.1", *settings]  # fmt: skip
    options = [word for setting in given for word in ("--set", setting)]
    return [sys.executable, "-m", "shardpiece.cli", "encode", "--input", str(job / "corpus"), "--master", master,
            "--tokenizer", str(job / "tokenizer"), "--output", str(output), *options]  # fmt: skip


@dataclass
class Attempt:
    """A running command with the processes below it."""

    process: subprocess.Popen
    log: Path
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    @classmethod
    def start(cls, arguments: list[str], log: Path) -> "Attempt":
        with log.open("ab") as file:
            return cls(subprocess.Popen(arguments, stdout=file, stderr=file, start_new_session=True), log)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def children(self) -> list[psutil.Process]:
        found = below(self.process.pid)
        self.seen.update((child.pid, child) for child in found)
        return found

    def kill(self) -> None:
        """The driver's Python alone: what it has started has to find out by itself."""
        self.children()
        self.process.kill()
        self.process.wait()

    def left(self, patience: float = 60) -> list[psutil.Process]:
        """Processes that outlive the driver by more than ``patience`` seconds."""
        return psutil.wait_procs(self.seen.values(), patience)[1]


def below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def is_worker(process: psutil.Process) -> bool:
    """A Python worker: a fork of Spark's daemon, which is its parent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return all(p is not None and "pyspark.daemon" in p.cmdline() for p in (process, parent))
    return False


def is_executor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    return False


def kill_one(
    attempt: "Attempt",
    output: Path,
    processes: list[psutil.Process],
    wanted: Callable[[psutil.Process], bool],
    generator: random.Random,
) -> bool:
    """SIGKILL one of the processes of that kind, none that has done little so far and may be idle, while a shard is being
    written."""
    with contextlib.suppress(psutil.NoSuchProcess):
        used = {p: sum(p.cpu_times()[:2]) for p in processes if wanted(p)}
        found = sorted((p for p in used if used[p] * 2 >= max(used.values())), key=lambda p: p.pid)
        if found and wait_for(lambda: any(output.glob("shard-*.tmp")), attempt):
            generator.choice(found).kill()
            return True
    return False


def finished_shards(output: Path) -> int:
    return len(list((output / "_journal").glob("*.json")))


def wait_for(condition: Callable[[], bool], attempt: Attempt) -> bool:
    """Whether it came true while the attempt was running."""
    end = time.monotonic() + _PATIENCE
    while attempt.running:
        if condition():
            return True
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened for {_PATIENCE:.0f} s\n{attempt.log.read_text()}")
        time.sleep(0.005)
    return False


def run_round(
    job: Path,
    output: Path,
    generator: random.Random,
    restarts: int,
    cluster: Cluster | None,
    settings: tuple[str, ...] = (),
) -> dict[str, int]:
    """Kill and restart, then let it finish; gives what was killed. Raises AssertionError when the last attempt fails or
    processes are left."""
    master = cluster.url if cluster else "local[2,4]"
    kind = is_executor if cluster else is_worker
    killed = {"drivers": 0, "executors": 0, "resumed": 0}
    moments = sorted(generator.sample(range(SHARDS - 4), restarts))
    attempts: list[Attempt] = []

    def disturb(attempt: Attempt, at: int) -> None:
        """Kill an executor when so many shards are done."""
        if wait_for(lambda: finished_shards(output) >= at, attempt):
            time.sleep(generator.random() * 0.1)
            places = [p for pid in cluster.workers for p in below(pid)] if cluster else attempt.children()
            killed["executors"] += kill_one(attempt, output, places, kind, generator)

    try:
        for number, moment in enumerate([*moments, None]):
            attempt = Attempt.start(command(job, output, master, *settings), output.with_suffix(".log"))
            attempts.append(attempt)
            before = moments[number - 1] if number else 0
            disturb(attempt, before + 1 if moment is None else (before + moment) // 2)
            if moment is None:
                attempt.process.wait(_PATIENCE)
            elif wait_for(lambda: finished_shards(output) >= moment, attempt):  # noqa: B023
                time.sleep(generator.random() * 0.1)
                attempt.kill()
                killed["drivers"] += 1
    finally:
        for attempt in attempts:
            if attempt.running:  # the round has failed or was broken off
                attempt.kill()
    log = output.with_suffix(".log").read_text()
    assert attempts[-1].process.returncode == 0, log
    killed["resumed"] = log.count("were finished by an earlier run")
    left = [process for attempt in attempts for process in attempt.left()]
    assert not left, f"outlived their driver: {left}"
    return killed


def contents(output: Path) -> dict[str, bytes]:
    """Every file that a run leaves, the journal too."""
    return {str(path.relative_to(output)): path.read_bytes() for path in sorted(output.rglob("*")) if path.is_file()}


def verify(job: Path, output: Path, expected: dict[str, bytes]) -> int:
    """The number of documents, after comparing with an undisturbed run, the manifest and the source."""
    assert_same(contents(output), expected)
    manifest = read_manifest(str(output))
    for shard in manifest["shards"]:
        for file in shard["files"]:
            assert storage.checksum(str(output / file["name"])) == file["checksum"], file["name"]
    tokenizer = shardpiece.load(str(job / "tokenizer"))
    source = input_rows(job / "corpus")
    decoded = [(name, raw.decode()) for name, _, raw in decoded_documents(str(output), tokenizer)]
    assert decoded == [(row["id"], row["text"] or "") for row in source]
    return len(decoded)


def verify_by_command(job: Path, output: Path) -> None:
    """What a user would ask: encode the source again and compare all documents."""
    asked = ["verify", str(output), "--tokenizer", str(job / "tokenizer"), "--input", str(job / "corpus")]
    done = subprocess.run([sys.executable, "-m", "shardpiece.cli", *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_same(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    assert sorted(found) == sorted(expected), f"other files: {sorted(set(found) ^ set(expected))}"
    different = [name for name, data in expected.items() if found[name] != data]
    assert not different, f"other bytes: {different}"


def undisturbed(job: Path, output: Path, master: str = "local[2]", *settings: str) -> dict[str, bytes]:
    done = subprocess.run(command(job, output, master, *settings), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return contents(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--no-cluster", action="store_true", help="only local[2] with retries")
    parser.add_argument("--directory", type=Path, help="where to work; default: a temporary directory")
    options = parser.parse_args()
    total = {"drivers": 0, "executors": 0, "resumed": 0}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        job = write_job(directory / "job", options.seed)
        expected = undisturbed(job, directory / "expected")
        cluster = None
        if not options.no_cluster:
            (directory / "cluster").mkdir()
            cluster = Cluster(directory / "cluster")
            stack.callback(cluster.stop)
        for number in range(options.rounds):
            generator = random.Random(f"{options.seed}/{number}")
            output = directory / f"round-{number}"
            began = time.monotonic()
            on = cluster if number % 2 else None
            killed = run_round(job, output, generator, options.restarts, on)
            documents = verify(job, output, expected)
            verify_by_command(job, output)
            total = {name: total[name] + killed[name] for name in total}
            print(
                f"round {number + 1:2} on {'cluster' if on else 'local[2]'}: {killed['drivers']} drivers and "
                f"{killed['executors']} {'executors' if on else 'Python workers'} killed, {killed['resumed']} attempts went on; "
                f"{documents:,} documents as in the source, {len(expected)} files as expected "
                f"({time.monotonic() - began:.0f} s)",
                flush=True,
            )
            shutil.rmtree(output)
    print(f"{options.rounds} rounds: {total['drivers']} drivers and {total['executors']} executors killed, nothing lost, "
          f"nothing doubled")  # fmt: skip


if __name__ == "__main__":
    main()
