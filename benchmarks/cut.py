"""BPE training on reduced tables (cut and deduplicate) beside training on the whole one: symbols, peak memory, time.

    python -m benchmarks.cut [--input GLOB ...] [--merges 32000 128000] [--megabytes 250] [--threads 1 2] [--repeats 1]

Every run is a process of its own that reads the word table as arrays, compiles on a few words, and reports its resident
memory before and the peak during the training. Merges and counts of all runs are compared.
"""

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import shardpiece
from benchmarks.corpora import read_texts, sets
from shardpiece.training.cut import learn_merges_cut
from shardpiece.training.merge_loop import learn_merges

ALPHABET = [bytes([b]) for b in range(256)]
GROUPS = ("web_multilingual", "code", "books", "parallel")


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def run(directory: str, n_merges: int, threads: int) -> dict:
    """One training, in a process of its own: on the whole table with 0 threads."""
    data, starts, counts = (np.load(Path(directory) / f"{name}.npy") for name in ("data", "starts", "counts"))
    for array in (data, starts, counts):
        array.flags.writeable = False
    few = min(len(counts), 2000)
    table = data[: starts[few]], starts[: few + 1], counts[:few]
    for learn in (learn_merges, learn_merges_cut):
        learn(*table, ALPHABET, 300)
    before = resident()
    # The peak so far is forgotten: Linux has it as VmHWM.
    Path("/proc/self/clear_refs").write_text("5")
    began = time.perf_counter()
    if threads:
        result, certificate = learn_merges_cut(data, starts, counts, ALPHABET, n_merges, threads=threads)
    else:
        result, certificate = learn_merges(data, starts, counts, ALPHABET, n_merges), None
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1e3 for line in status if line.startswith("VmHWM:"))
    digest = hashlib.sha256(result.merges.tobytes() + result.counts.tobytes()).hexdigest()
    return {
        "seconds": seconds,
        "before": before,
        "peak": peak,
        "digest": digest,
        "merges": len(result.merges),
        "certificate": certificate and certificate.to_json(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--merges", type=int, nargs="+", default=[32_000, 128_000])
    parser.add_argument("--megabytes", type=float, default=250, help="of each group, at most")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of the trainings on reduced tables")
    parser.add_argument("--repeats", type=int, default=1, help="the shortest time counts")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(options.run[0], int(options.run[1]), int(options.run[2]))))
        return
    texts = (text for paths in sets(options.input, GROUPS).values() for text in read_texts(paths, options.megabytes))
    arrays = shardpiece.WordTable.from_texts(texts, "cl100k_base").arrays()
    console = Console(width=120)
    title = f"{len(arrays[2]):,} words, {len(arrays[0]):,} symbols"
    table = Table(title=title)
    for column in (
        "merges",
        "training",
        "most symbols at once",
        "s",
        "MB before",
        "MB peak",
        "MB more",
        "bytes/symbol",
    ):
        table.add_column(column, justify="right")
    epochs = Table(title="the reductions")
    for column in ("merges wanted", "floor", "symbols", "become", "share of the table", "pieces", "merges proven"):
        epochs.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as directory:
        for name, array in zip(("data", "starts", "counts"), arrays, strict=True):
            np.save(Path(directory) / f"{name}.npy", array)
        for n_merges in options.merges:
            done: dict[int, list[dict]] = {threads: [] for threads in (0, *options.threads)}
            for _ in range(options.repeats):
                for threads, runs in done.items():
                    command = [sys.executable, "-m", "benchmarks.cut", "--run", directory, str(n_merges), str(threads)]
                    runs.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
            digests = {run["digest"] for runs in done.values() for run in runs}
            for threads, runs in done.items():
                best = min(runs, key=lambda run: run["seconds"])
                symbols = len(arrays[0])
                if threads:
                    reductions = best["certificate"]["epochs"]
                    symbols = max(e["piece_symbols"] for e in reductions)
                    if threads == options.threads[0]:
                        for e in reductions:
                            epochs.add_row(
                                f"{n_merges:,}", f"{e['floor']:,}", f"{e['symbols']:,}", f"{e['piece_symbols']:,}",
                                f"{e['piece_symbols'] / len(arrays[0]):.1%}", f"{e['pieces']:,}", f"{e['merges']:,}",
                            )  # fmt: skip
                more = best["peak"] - best["before"]
                table.add_row(
                    f"{best['merges']:,}", f"reduced, {threads} threads" if threads else "whole", f"{symbols:,}",
                    f"{best['seconds']:.1f}", f"{best['before']:,.0f}", f"{best['peak']:,.0f}", f"{more:,.0f}",
                    f"{more * 1e6 / len(arrays[0]):.1f}",
                )  # fmt: skip
            if len(digests) > 1:
                raise SystemExit(f"{n_merges:,} merges: the merges or their counts differ")
    console.print(epochs)
    console.print(table)
    console.print("merges and counts are the same in all runs")


if __name__ == "__main__":
    main()
