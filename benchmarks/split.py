"""Pre-tokenization beside the regex module and Hugging Face's pre-tokenizer, on one core, same text.

    python -m benchmarks.split [--input GLOB ...] [--megabytes 4] [--repeats 3]

Every split is compared with regex before anything is timed. Interleaved in one process; the median counts. regex is
timed in its fastest form (findall, no positions); Hugging Face gives Python tuples, which is part of its cost.
"""

import argparse
import os
import statistics
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import regex
from rich.console import Console
from rich.table import Table
from tokenizers import Regex, pre_tokenizers

from benchmarks.corpora import read_texts, sets
from shardpiece.text.documents import Documents
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.pretokenizers import PreTokenizer


def measure(name: str, texts: list[str], repeats: int) -> tuple[float, float, float]:
    """MB/s of ours, regex and Hugging Face."""
    documents = Documents.from_strings(texts)
    ours = PreTokenizer(name)
    findall = regex.compile(PATTERNS[name]).findall
    peer = pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated")
    words = ours.split(documents)
    raw = documents.data.tobytes()
    starts = [0, *words.ends[:-1].tolist()]
    expected = (word.encode() for text in texts for word in findall(text))
    assert all(raw[a:b] == w for a, b, w in zip(starts, words.ends.tolist(), expected, strict=True)), name

    calls = (
        lambda: ours.split(documents),
        lambda: [findall(text) for text in texts],
        lambda: [peer.pre_tokenize_str(text) for text in texts],
    )
    times: list[list[float]] = [[], [], []]
    for _ in range(repeats):
        for call, kept in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            kept.append(time.perf_counter() - began)
    size = documents.size / 1e6
    return tuple(size / statistics.median(kept) for kept in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    table = Table(title=f"splitting, MB/s on one core, median of {options.repeats} interleaved; splits all equal")
    for column in ("text", "pattern", "ours", "regex", "ratio", "Hugging Face", "ratio"):
        table.add_column(column, justify="right")
    for text, paths in sets(options.input, ("code", "web_multilingual", "books")).items():
        texts = read_texts(paths, options.megabytes)
        for name in PATTERNS:
            ours, plain, peer = measure(name, texts, options.repeats)
            row = (f"{ours:.0f}", f"{plain:.1f}", f"{ours / plain:.1f}×", f"{peer:.1f}", f"{ours / peer:.0f}×")
            table.add_row(text, name, *row)
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
