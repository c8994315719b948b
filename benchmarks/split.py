"""Pre-tokenization beside the regex module and Hugging Face's pre-tokenizer, on one core, same text.

    python -m benchmarks.split [--input GLOB ...] [--megabytes 2] [--repeats 5] [--pattern NAME ...]
    python -m benchmarks.split --worst-case

Every split is compared with regex before anything is timed. Interleaved in one process; the shortest time counts.
"automaton" and "windows" are ours without and with the window kernels, as arrays of word ends. regex gives the same as
Python integers by finditer, and the words without positions, which is its fastest form, by findall. Hugging Face gives
Python tuples, which is part of its cost. Ratios are to finditer.

--worst-case splits a megabyte of each of many texts that nobody writes, and shows how much longer each takes than a
megabyte of English.
"""

import argparse
import os
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import pyarrow.parquet as pq
import regex
from rich.console import Console
from rich.table import Table
from tokenizers import Regex, pre_tokenizers

from benchmarks.corpora import read_texts, sets
from shardpiece.text.dfa import compile_pattern
from shardpiece.text.documents import Documents
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.splitter import Splitter

WORST_CASE_BYTES = 1_000_000
UNITS = (
    *("a", "A", "aA", "aAaa", "1", "^", "'", "=-", "\x00", " ", "\n", "\t", "\r\n", " \n", "\n ", "\n    ", " \t\n\n "),
    *("a ", "a a a ", "1 ", "12 ", "a1", "a1B2", "'s", "'S ", "x's ", "'s's ", "don't ", "'re", "!\n", "!\n/", "//\n"),
    *("\n    x", "( ", "a" * 70 + " ", "é", "éa", "é ", "café ", "“word” ", "ж", "жж ", "क्", "\u0301", "a\u0301"),
    *("中", "中 ", "中a", "\u00a0", "\u3000", "😀", "😀 "),
)  # fmt: skip


def corpora(inputs: list[str] | None, megabytes: float) -> dict[str, list[str]]:
    """Texts by name: the user's, or English, many languages and code."""
    if inputs:
        return {"input": read_texts(sets(inputs, ())["input"], megabytes)}
    paths = sets(None, ("web_multilingual", "code"))
    english, size = [], 0
    for path in paths["web_multilingual"]:
        for text in pq.read_table(path, filters=[("lang", "=", "en")])["text"].to_pylist():
            if size < megabytes * 1e6:
                english.append(text)
                size += len(text)
    multilingual = read_texts(paths["web_multilingual"], megabytes)
    return {"English": english, "multilingual": multilingual, "code": read_texts(paths["code"], megabytes)}


def shortest(calls, repeats: int) -> list[float]:
    """Seconds of each call, the least of ``repeats``, one after the other."""
    times = [float("inf")] * len(calls)
    for _ in range(repeats):
        for i, (call, more) in enumerate(calls):
            for _ in range(more):
                began = time.perf_counter()
                call()
                times[i] = min(times[i], time.perf_counter() - began)
    return times


def measure(name: str, texts: list[str], repeats: int) -> list[float]:
    """MB/s of the automaton, windows, finditer, findall and Hugging Face, after a check that splits are equal."""
    documents = Documents.from_strings(texts)
    pattern = regex.compile(PATTERNS[name])
    dfa = compile_pattern(PATTERNS[name])
    automaton, windows = Splitter(dfa, windows=False), Splitter(dfa)
    starts = np.append(np.flatnonzero((documents.data & 0xC0) != 0x80), len(documents.data))
    expected = starts[np.cumsum([len(word) for text in texts for word in pattern.findall(text)])]
    for splitter in (automaton, windows):
        assert np.array_equal(splitter.split(documents)[0], expected), name
    peer = pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated")
    calls = (
        (lambda: automaton.split(documents), 5),
        (lambda: windows.split(documents), 5),
        (lambda: [[match.end() for match in pattern.finditer(text)] for text in texts], 1),
        (lambda: [pattern.findall(text) for text in texts], 1),
        (lambda: [peer.pre_tokenize_str(text) for text in texts], 1),
    )
    return [documents.size / 1e6 / seconds for seconds in shortest(calls, repeats)]


def compare(console: Console, options: argparse.Namespace) -> None:
    table = Table(title=f"splitting, MB/s on one core, the best of {options.repeats}; splits all equal")
    names = (
        "text",
        "pattern",
        "automaton",
        "ratio",
        "windows",
        "ratio",
        "finditer",
        "findall",
        "Hugging Face",
        "ratio",
    )
    for column in names:
        table.add_column(column, justify="right")
    for text, texts in corpora(options.input, options.megabytes).items():
        for name in options.pattern:
            own, fast, finditer, findall, peer = measure(name, texts, options.repeats)
            table.add_row(
                text, name, f"{own:.0f}", f"{own / finditer:.0f}×", f"{fast:.0f}", f"{fast / finditer:.0f}×",
                f"{finditer:.1f}", f"{findall:.1f}", f"{peer:.1f}", f"{fast / peer:.0f}×",
            )  # fmt: skip
        table.add_section()
    console.print(table)


def worst_cases() -> dict[str, Documents]:
    size = WORST_CASE_BYTES
    cases = {
        "1-byte documents": Documents.from_strings(["a"] * size),
        "2-byte documents": Documents.from_strings(["a "] * (size // 2)),
        "20-byte documents": Documents.from_strings(["hello world is good."] * (size // 20)),
        "70-byte documents": Documents.from_strings([("hello world is good. " * 4)[:70]] * (size // 70)),
    }
    for unit in UNITS:
        label = ascii(unit) if len(unit) < 20 else f"{unit[:3]}.. ({len(unit)} bytes)"
        cases[label] = Documents.from_strings([unit * (size // len(unit.encode()))])
    return cases


def compare_worst(console: Console, options: argparse.Namespace) -> None:
    table = Table(title="time for a megabyte of each, relative to English: automaton / windows")
    table.add_column("text")
    for name in options.pattern:
        table.add_column(name, justify="right")
    english = next(iter(corpora(options.input, 4).values()))
    cases = {"English": Documents.from_strings(["".join(english)[:WORST_CASE_BYTES]]), **worst_cases()}
    columns = []
    for name in options.pattern:
        dfa = compile_pattern(PATTERNS[name])
        splitters = Splitter(dfa, windows=False), Splitter(dfa)
        calls = [(lambda s=s, d=d: s.split(d), 1) for d in cases.values() for s in splitters]
        times = np.array(shortest(calls, 2 * options.repeats)).reshape(-1, 2)
        times /= np.array([[documents.size] for documents in cases.values()])
        relative = [f"{own:.1f} / {fast:.1f}" for own, fast in times / times[0]]
        relative[0] = " / ".join(f"{1e-6 / t:.0f} MB/s" for t in times[0])
        columns.append(relative)
    for label, *row in zip(cases, *columns, strict=True):
        table.add_row(label, *row)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pattern", nargs="*", default=list(PATTERNS), choices=list(PATTERNS))
    parser.add_argument("--worst-case", action="store_true", help="texts that nobody writes, relative to English")
    options = parser.parse_args()
    console = Console(width=120)
    if options.worst_case:
        compare_worst(console, options)
    else:
        compare(console, options)


if __name__ == "__main__":
    main()
