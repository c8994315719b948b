"""Memory of the Python workers while a corpus is counted and encoded: how high it goes, and whether it stays there.

    python -m benchmarks.memory [--gigabytes 20] [--stages count encode] [--formats bin] [--tokenizer o200k_base] [--cores 2]
                                [--directory DIR] [--document-megabytes 200]

The corpus: documents of the shared corpora over and over, each with words of its own at its end that no other document has,
so that tables and caches of words go on growing where nothing bounds them; in Parquet files of 256 MB of text, written below
--directory and removed afterwards. With --document-megabytes there is one document of this size in the middle, made of text
of the corpus. Each stage is a command of its own; the resident memory of every Python worker is read twice a second. The table
has a row for each tenth of the stage's time: the largest worker, what the job had read by then, MB/s.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
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
    for group in groups(paths, total):
        if document and 2 * size * max(1, files) >= 0 and files == max(1, total // _FILE_BYTES // 2) - 1:
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
    """Seconds since the start, resident bytes of the largest Python worker, CPU seconds of all of them."""

    seconds: float
    largest: int


def watch(command: list[str]) -> tuple[list[Sample], float]:
    """(samples while a command runs, its seconds); its Python workers are those that Spark's daemon has forked."""
    samples = []
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while process.poll() is None:
        sizes = [0]
        try:
            for child in psutil.Process(process.pid).children(recursive=True):
                if "python" in child.name() and "pyspark.daemon" in child.cmdline():
                    sizes.append(child.memory_info().rss)
        except psutil.NoSuchProcess:
            pass
        samples.append(Sample(time.monotonic() - began, max(sizes)))
        time.sleep(0.5)
    said = process.stdout.read()
    if process.returncode:
        raise SystemExit(said)
    stage = re.search(r"in (?:(\d+):)?(\d+):(\d+)", said)
    hours, minutes, seconds = (int(part or 0) for part in stage.groups())
    return samples, hours * 3600 + minutes * 60 + seconds


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
    options = parser.parse_args()
    paths = [path for found in sets(None, SETS).values() for path in found]
    with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
        corpus = Path(temporary) / "corpus"
        write_corpus(paths, int(options.gigabytes * 1e9), options.document_megabytes * 1_000_000, corpus)
        for stage in options.stages:
            output = Path(temporary) / stage
            settings = [f"encode.format=[{','.join(options.formats)}]", "id_column=id", *options.settings]
            command = [sys.executable, "-m", "shardpiece.cli", stage, "--input", str(corpus), "--output", str(output),
                       "--master", f"local[{options.cores}]", *(w for s in settings for w in ("--set", s))]  # fmt: skip
            command += ["--tokenizer", vocabulary_path(options.tokenizer)] if stage == "encode" else []
            samples, seconds = watch(command)
            report(stage, options.gigabytes, samples, seconds)
            shutil.rmtree(output)


def report(stage: str, gigabytes: float, samples: list[Sample], seconds: float) -> None:
    working = [sample for sample in samples if sample.largest > 0]
    table = Table(title=f"{stage}, {gigabytes:g} GB of text: {gigabytes * 1000 / max(1, seconds):,.0f} MB/s over all")
    for column in ("part of the time", "median MB of the largest worker", "most MB"):
        table.add_column(column, justify="right")
    for tenth in range(10):
        part = working[len(working) * tenth // 10 : len(working) * (tenth + 1) // 10] or working[-1:]
        sizes = [sample.largest / 1e6 for sample in part]
        table.add_row(f"{tenth * 10} to {tenth * 10 + 10} %", f"{statistics.median(sizes):,.0f}", f"{max(sizes):,.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    os.environ.setdefault("SHARDPIECE_SHARED", "../shared")
    main()
