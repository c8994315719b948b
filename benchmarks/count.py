"""Splitting and counting words beside gigatoken's own count, on one core, same text (the GPT-2 pattern, which is its).

    python -m benchmarks.count [--input GLOB ...] [--megabytes 8] [--repeats 7]

Interleaved in one process; the shortest time counts. "count": ours is splitting and filling the table, gigatoken's what
it reports for itself (on standard error). "in all" adds what it takes to hand the words out: ours as Arrow batches,
gigatoken's as a Python list. The counts are compared first; texts are joined to one document for both.
"""

import argparse
import os
import re
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"

from gigatoken.gigatoken_rs import pretokenized_counts
from rich.console import Console
from rich.table import Table

from benchmarks.split import corpora
from shardpiece.text.dfa import compile_pattern
from shardpiece.text.documents import Documents, Words
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.splitter import Splitter
from shardpiece.words.counter import WordCounter

_UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def peer(raw: bytes) -> tuple[float, float, list[tuple[bytes, int]]]:
    """(seconds it reports, seconds of the call, counts)."""
    with tempfile.TemporaryFile() as log:
        before = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            began = time.perf_counter()
            counts = pretokenized_counts(raw)
            seconds = time.perf_counter() - began
        finally:
            os.dup2(before, 2)
            os.close(before)
        log.seek(0)
        reported = re.search(r"took ([\d.]+)(ns|µs|ms|s)", log.read().decode())
    return float(reported[1]) * _UNITS[reported[2]] if reported else seconds, seconds, counts


def ours(splitter: Splitter, documents: Documents) -> tuple[float, float, float, list]:
    """(seconds to split, to split and count, to hand out as well, batches)."""
    began = time.perf_counter()
    words = Words(documents.data, 0, *splitter.split(documents))
    split = time.perf_counter() - began
    counter = WordCounter()
    batches = list(counter.add(words))
    counted = time.perf_counter() - began
    batches += counter.drain()
    return split, counted, time.perf_counter() - began, batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    table = Table(title=f"counting, MB/s on one core, the best of {options.repeats}")
    columns = (
        "text",
        "MB",
        "words",
        "distinct",
        "split",
        "count",
        "gigatoken",
        "ratio",
        "in all",
        "gigatoken",
        "ratio",
    )
    for column in columns:
        table.add_column(column, justify="right")
    splitter = Splitter(compile_pattern(PATTERNS["gpt2"]))
    differing = 0
    for text, texts in corpora(options.input, options.megabytes).items():
        documents = Documents.from_strings(["".join(texts)])
        raw = documents.data.tobytes()
        expected = dict(peer(raw)[2])
        batches = ours(splitter, documents)[3]
        counts = {w: n for b in batches for w, n in zip(b["word"].to_pylist(), b["count"].to_pylist(), strict=True)}
        differing += len(counts.items() ^ expected.items())
        times = [float("inf")] * 5
        for _ in range(options.repeats):
            measured = *ours(splitter, documents)[:3], *peer(raw)[:2]
            times = [min(pair) for pair in zip(times, measured, strict=True)]
        size = documents.size / 1e6
        split, counted, total, their_count, their_total = (size / seconds for seconds in times)
        table.add_row(
            text, f"{size:.1f}", f"{sum(counts.values()):,}", f"{len(counts):,}", f"{split:.0f}", f"{counted:.0f}",
            f"{their_count:.0f}", f"{counted / their_count:.2f}×", f"{total:.0f}", f"{their_total:.0f}",
            f"{total / their_total:.2f}×",
        )  # fmt: skip
    console = Console(width=120)
    console.print(table)
    console.print(f"words counted differently: {differing}")


if __name__ == "__main__":
    main()
