"""Memory of the Python workers while a corpus is counted and encoded: how high it goes, and whether it stays there.

    python -m benchmarks.memory [--gigabytes 20] [--stages count encode] [--formats bin] [--tokenizer o200k_base] [--cores 2]
                                [--directory DIR] [--document-megabytes 200] [--prepare] [--corpus DIR]

The corpus: documents of the shared corpora over and over, each with words of its own at its end that no other document has,
so that tables and caches of words go on growing where nothing bounds them; in Parquet files of 256 MB of text, written below
--directory and removed afterwards. With --document-megabytes there is one document of this size in the middle, made of text
of the corpus. --prepare only writes the corpus, and --corpus takes one that was. Each stage is a command of its own; the resident
memory of every Python worker is read twice a second, and what the stage says of its progress as it says it. The table has a row for
each tenth of the time that workers were there: the largest worker, and MB/s of text.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.corpora import sets
from benchmarks.encode_stage import SETS, vocabulary_path

_FILE_BYTES = 256 << 20
_GROUP_BYTES = 32 << 20


def groups(paths: list[Path], total: int) -> Iterator[pa.Table]:
    """Row groups with ids of their own, of ``total`` bytes of text together."""
    text = pa.concat_tables([pq.read_table(path, columns=["text"]) for path in paths])["text"].drop_null()
    text = text.cast(pa.large_string()).combine_chunks()
    sizes = pc.binary_length(text).to_numpy()
    generator = np.random.default_rng(1)
    done, number = 0, 0
    while done < total:
        order = generator.permutation(len(text))
        for part in np.split(order, np.flatnonzero(np.diff(np.cumsum(sizes[order]) // _GROUP_BYTES)) + 1):
            numbers = pa.array(np.arange(number, number + len(part)))
            ids = pc.binary_join_element_wise("d", numbers.cast(pa.string()), "")
            own = pc.binary_join_element_wise(" q", pc.utf8_reverse(ids), " x", ids, "").cast(pa.large_string())
            rows = pc.binary_join_element_wise(text.take(pa.array(part)), own, pa.scalar("", pa.large_string()))
            yield pa.table({"id": ids, "text": rows})
            number += len(part)
            done += int(sizes[part].sum())
            if done >= total:
                return


def write_corpus(paths: list[Path], total: int, document: int, directory: Path) -> None:
    directory.mkdir(parents=True)
    writer, size, files = None, 0, 0
    middle = max(1, total // _FILE_BYTES) // 2
    for group in groups(paths, total):
        if document and files == middle:
            joined = "".join(group["text"].to_pylist())
            joined = (joined * (document // len(joined.encode()) + 1)).encode()[:document].decode(errors="ignore")
            pq.write_table(
                pa.table({"id": ["long"], "text": pa.array([joined], pa.large_string())}), directory / "middle.parquet"
            )
            document = 0
        if writer is None:
            writer = pq.ParquetWriter(directory / f"part-{files:05}.parquet", group.schema, compression="zstd")
        writer.write_table(group, row_group_size=1 << 30)
        size += group.nbytes
        if size >= _FILE_BYTES:
            writer.close()
            writer, size, files = None, 0, files + 1
    if writer is not None:
        writer.close()


@dataclass(frozen=True)
class Sample:
    """Seconds since the start, resident bytes of the largest Python worker."""

    seconds: float
    largest: int


@dataclass
class Watched:
    """What was seen of a command: ``read``: (seconds since the start, MB of text by then); ``seconds``: of the stage."""

    samples: list[Sample]
    read: list[tuple[float, float]]
    seconds: float


def watch(command: list[str]) -> Watched:
    """Its Python workers are those that Spark's daemon has forked."""
    samples, read, said = [], [(0.0, 0.0)], []
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def listen() -> None:
        for line in process.stdout:
            said.append(line)
            if found := re.search(r": (?:\d+%|done), .* ([\d.,]+) MB, ", line):
                read.append((time.monotonic() - began, float(found[1].replace(",", ""))))

    listener = threading.Thread(target=listen)
    listener.start()
    while process.poll() is None:
        sizes = [0]
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                if "python" in child.name() and "pyspark.daemon" in child.cmdline():
                    sizes.append(child.memory_info().rss)
        samples.append(Sample(time.monotonic() - began, max(sizes)))
        time.sleep(0.5)
    listener.join()
    if process.returncode:
        raise SystemExit("".join(said))
    stage = re.search(r"in (?:(\d+):)?(\d+):(\d+)", "".join(said))
    hours, minutes, seconds = (int(part or 0) for part in stage.groups())
    return Watched(samples, read, hours * 3600 + minutes * 60 + seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--document-megabytes", type=int, default=0)
    parser.add_argument("--stages", nargs="*", choices=("count", "encode"), default=["count", "encode"])
    parser.add_argument("--formats", nargs="*", default=["bin"])
    parser.add_argument("--tokenizer", default="o200k_base", help="file, or name in shared/vocabs")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--prepare", action="store_true", help="only write the corpus, to --corpus")
    parser.add_argument("--corpus", type=Path, help="a corpus that --prepare wrote")
    options = parser.parse_args()
    paths = [path for found in sets(None, SETS).values() for path in found]
    with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
        corpus = options.corpus or Path(temporary) / "corpus"
        if options.prepare or not options.corpus:
            write_corpus(paths, int(options.gigabytes * 1e9), options.document_megabytes * 1_000_000, corpus)
        if options.prepare:
            return
        for stage in options.stages:
            output = Path(temporary) / stage
            settings = [f"encode.format=[{','.join(options.formats)}]", "id_column=id", *options.settings]
            command = [sys.executable, "-m", "shardpiece.cli", stage, "--input", str(corpus), "--output", str(output),
                       "--master", f"local[{options.cores}]", *(w for s in settings for w in ("--set", s))]  # fmt: skip
            command += ["--tokenizer", vocabulary_path(options.tokenizer)] if stage == "encode" else []
            report(stage, watch(command))
            shutil.rmtree(output)


def report(stage: str, watched: Watched) -> None:
    megabytes = watched.read[-1][1]
    working = [sample for sample in watched.samples if sample.largest > 0]
    start, end = working[0].seconds, working[-1].seconds
    bounds = np.linspace(start, end, 11)
    known = np.interp(bounds, *zip(*watched.read, strict=True))
    table = Table(title=f"{stage}, {megabytes / 1000:.1f} GB: {megabytes / max(1, watched.seconds):,.0f} MB/s over all")
    for column in ("part of the time", "median MB of the largest worker", "most MB", "MB/s"):
        table.add_column(column, justify="right")
    for tenth in range(10):
        part = [s for s in working if bounds[tenth] <= s.seconds <= bounds[tenth + 1]] or working[-1:]
        sizes = [sample.largest / 1e6 for sample in part]
        rate = (known[tenth + 1] - known[tenth]) / max(1e-9, bounds[tenth + 1] - bounds[tenth])
        table.add_row(
            f"{tenth * 10} to {tenth * 10 + 10} %", f"{statistics.median(sizes):,.0f}", f"{max(sizes):,.0f}", f"{rate:,.0f}"
        )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    os.environ.setdefault("SHARDPIECE_SHARED", "../shared")
    main()
