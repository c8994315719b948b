"""From Parquet files to a finished tokenizer: the count and train stages beside Hugging Face tokenizers, rustbpe and gigatoken.

    python -m benchmarks.end_to_end [--input GLOB ...] [--sets code books ...] [--vocab-size 32768] [--repeats 3] [--peers hf ...]

Each reads the files itself, splits with the cl100k pattern (gigatoken with its own, GPT-2's), counts, and learns a vocabulary
of --vocab-size; ours and Hugging Face write tokenizer.json. All use two cores. Ours are the stages as `shardpiece run` calls
them, in a Spark session that has been started before, and leave a word table behind, checked and reusable. A session's first
run starts its Python workers and is shown apart ("first"); the others are interleaved with the peers. Medians count.
gigatoken gets the files, or their text as one string, whichever is faster.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count as numbers
from pathlib import Path

import gigatoken
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.corpora import sets
from benchmarks.merge_loop import hugging_face, rust_bpe, seconds
from shardpiece.config import load_config
from shardpiece.pipeline.count import count
from shardpiece.pipeline.session import lazy_session
from shardpiece.pipeline.train import train

SETS = ("code", "web_multilingual", "books", "parallel")
PEERS = ("hf", "rustbpe", "gigatoken")


def texts(paths: list[Path]) -> Iterator[str]:
    """The documents of the files as a peer's user would read them."""
    for path in paths:
        for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
            yield from (text for text in batch["text"].to_pylist() if text is not None)


def peer_calls(paths: list[Path], vocab_size: int, directory: Path, peers: list[str]) -> dict[str, Callable]:
    files = [str(path) for path in paths]
    calls = {
        "hf": lambda: hugging_face(texts(paths), vocab_size).save(str(directory / "hf.json")),
        "rustbpe": lambda: rust_bpe(texts(paths), vocab_size),
        "gigatoken": lambda: gigatoken.train_bpe(gigatoken.ParquetFileSource(files), vocab_size, []),
    }
    return {name: calls[name] for name in peers}


def run(spark, paths: list[Path], vocab_size: int, output: Path) -> tuple[float, float]:
    """Seconds of counting and of training."""
    config = load_config(
        None, {"input": [str(path.resolve()) for path in paths], "output": str(output), "train.vocab_size": vocab_size}
    )
    return seconds(lambda: count(lambda: spark, config)), seconds(lambda: train(config))


def measure(get_spark: Callable, paths: list[Path], options, directory: Path) -> list[str]:
    outputs = (directory / str(i) for i in numbers())
    first = sum(run(get_spark(), paths, options.vocab_size, next(outputs)))
    calls = peer_calls(paths, options.vocab_size, directory, options.peers)
    if "gigatoken" in calls:

        def joined():
            return gigatoken.train_bpe("\n".join(texts(paths)).encode(), options.vocab_size, [])

        calls["gigatoken"] = min(joined, calls["gigatoken"], key=seconds)
    ours: list[tuple[float, float]] = []
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.repeats):
        ours.append(run(get_spark(), paths, options.vocab_size, next(outputs)))
        for name, call in calls.items():
            times[name].append(seconds(call))
    counting, training = (statistics.median(part) for part in zip(*ours, strict=True))
    total = statistics.median(map(sum, ours))
    cells = [f"{first:.1f}", f"{counting:.2f} + {training:.2f} = {total:.2f}"]
    for name in PEERS:
        peer = statistics.median(times[name]) if name in times else None
        cells += [f"{peer:.2f}", f"{peer / total:.1f}×"] if peer else ["", ""]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--sets", nargs="*", choices=[*SETS, "all"], default=[*SETS[:3], "all"])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--vocab-size", type=int, default=32_768)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    corpora = sets(options.input, SETS)
    if not options.input:
        corpora["all"] = [path for name in SETS for path in corpora[name]]
        corpora = {name: corpora[name] for name in options.sets}
    table = Table(title=f"Parquet files → {options.vocab_size:,} tokens, median of {options.repeats}, 2 cores")
    for column in (
        "text",
        "MB",
        "first s",
        "ours s: count + train",
        "HF s",
        "ratio",
        "rustbpe s",
        "ratio",
        "gigatoken s",
        "ratio",
    ):
        table.add_column(column, justify="right")
    session = load_config(None, {"input": ["-"], "output": "-", "master": "local[2]"})
    began = time.perf_counter()
    with lazy_session(session, "benchmark") as get_spark, tempfile.TemporaryDirectory() as directory:
        get_spark().range(1).collect()
        started = time.perf_counter() - began
        for name, paths in corpora.items():
            size = sum(len(text.encode()) for text in texts(paths)) / 1e6
            (place := Path(directory) / name).mkdir()
            table.add_row(name, f"{size:.0f}", *measure(get_spark, paths, options, place))
    console = Console(width=160)
    console.print(table)
    console.print(f"Spark session: started before in {started:.1f} s")


if __name__ == "__main__":
    main()
