"""The encode stage on Parquet files beside its own kernels: what of (kernel MB/s × cores) arrives in shards.

    python -m benchmarks.encode_stage [--input GLOB ...] [--megabytes 1000] [--vocabularies o200k_base ...] [--formats bin ...]
                                      [--cores 2] [--directory DIR] [--repeats 2]

The corpus: documents of the shared corpora (or of --input), shuffled anew for every round until there are --megabytes of
text, in Parquet files of 64 MB (zstd). "kernel": splitting and encoding alone, of the same documents in the same batches, on one
core, read before. "stage": the encode stage on --cores cores, the job as the stage itself reports it; "call": all of it, with
what the driver does before and after, which takes as long for any corpus: reading the tokenizer's file, making its tables,
picking words. The session's first call, which starts the Python workers, is shown apart. Kernel and stage both begin with the
frequent words of the corpus's own word table ("cold": the first eighth, without). Documents come again in every round beyond the
shared corpora's 247 MB, and most of their words are then known: such figures are warm, of the kernel as of the stage. Kernel and
stage take turns; medians of --repeats, the last column of the ratios. With --directory, corpus and word tables stay there for the next run.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.corpora import sets
from benchmarks.merge_loop import seconds
from shardpiece.config import JobConfig, load_config
from shardpiece.corpus.base import Columns
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import plan_input
from shardpiece.pipeline.count import count
from shardpiece.pipeline.encode.documents import chunks
from shardpiece.pipeline.encode.stage import encode
from shardpiece.pipeline.encode.warm_words import warm_words
from shardpiece.pipeline.session import lazy_session
from shardpiece.pipeline.tasks import read_documents
from shardpiece.text.documents import Documents
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.loading import load
from shardpiece.tokenizer.tokenizer import Tokenizer

SETS = ("code", "web_multilingual", "books", "parallel")
_FILE_BYTES = 64 << 20
_CACHE_BYTES = 64 << 20


def write_corpus(paths: list[Path], megabytes: int, directory: Path) -> None:
    """Shuffled rounds of the files' documents; the same for the same arguments."""
    partial = directory.with_name(directory.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    text = pa.concat_tables([pq.read_table(path, columns=["text"]) for path in paths])["text"].drop_null()
    text = text.cast(pa.large_binary()).combine_chunks()
    sizes = pc.binary_length(text).to_numpy()
    generator = np.random.default_rng(1)
    left, files = megabytes * 1_000_000, 0
    while left > 0:
        order = generator.permutation(len(text))
        order = order[np.cumsum(sizes[order]) <= left]
        if not len(order):
            break
        left -= int(sizes[order].sum())
        for part in np.split(order, np.flatnonzero(np.diff(np.cumsum(sizes[order]) // _FILE_BYTES)) + 1):
            rows = pa.table({"text": text.take(pa.array(part)).cast(pa.large_string())})
            pq.write_table(
                rows, partial / f"part-{files:05}.parquet", compression="zstd", row_group_size=len(part) // 4 + 1
            )
            files += 1
    partial.rename(directory)


def kernel_seconds(tokenizer: Tokenizer, batches: list[Documents]) -> float:
    def run() -> None:
        for documents in batches:
            for _, chunk in chunks(documents):
                tokenizer.encode_documents(chunk)

    return seconds(run)


class Kernel:
    """Splitting and encoding alone, of a corpus that was read before."""

    def __init__(self, config: JobConfig, tokenizer: Tokenizer):
        self._raw = packed.pack(tokenizer)
        splits = plan_input(list_files(config.input), Columns("text")).splits
        self._batches = [documents for _, documents in read_documents(splits, Columns("text"), "replace")]
        self._words = warm_words(config.encode.warm_words, tokenizer, _CACHE_BYTES, required=True)
        self.size = sum(documents.size for documents in self._batches)

    def cold_rate(self) -> float:
        """Bytes per second of the first eighth, with nothing known."""
        some = self._batches[: max(1, len(self._batches) // 8)]
        size = sum(documents.size for documents in some)
        return size / kernel_seconds(packed.unpack(self._raw, _CACHE_BYTES), some)

    def rate(self) -> float:
        """Bytes per second of all of it, with the frequent words known."""
        warm = packed.unpack(self._raw, _CACHE_BYTES)
        self._words.encode_with(warm)
        return self.size / kernel_seconds(warm, self._batches)


def measure(get_spark: Callable, config: JobConfig, options, output: Path) -> list[list[str]]:
    """Kernel and stage in turn, as the machine is faster at one time than at another."""
    tokenizer = load(config.encode.tokenizer)
    tokenizer.encode("compiled")
    kernel = Kernel(config, tokenizer)
    cold = kernel.cold_rate()
    rows = []
    for shard_format in options.formats:
        calls, stages, kernels = [], [], []
        for i in range(options.repeats + 1):
            if i:
                kernels.append(kernel.rate())
            place = output / f"{shard_format}-{i}"
            run = config.model_copy(
                update={"encode": config.encode.model_copy(update={"format": [shard_format], "output": str(place)})}
            )
            began = time.perf_counter()
            stages.append(kernel.size / encode(get_spark, run).seconds)
            calls.append(time.perf_counter() - began)
            shutil.rmtree(place)
        stage, warm = statistics.median(stages[1:]), statistics.median(kernels)
        share = statistics.median(a / b for a, b in zip(stages[1:], kernels, strict=True)) / options.cores
        rows.append(
            [shard_format, f"{cold / 1e6:.0f}", f"{warm / 1e6:.0f}", f"{calls[0]:.1f}",
             f"{statistics.median(calls[1:]):.1f}", f"{kernel.size / stage:.1f}", f"{stage / 1e6:.0f}", f"{share:.0%}"]
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--vocabularies", nargs="*", default=["o200k_base"], help="files, or names in shared/vocabs")
    parser.add_argument("--formats", nargs="*", choices=("bin", "parquet"), default=["bin", "parquet"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--shard-size", default="64MB")
    parser.add_argument("--directory", type=Path, help="where corpus and word tables stay")
    parser.add_argument("--prepare", action="store_true", help="only write corpus and word tables to --directory")
    options = parser.parse_args()
    found = sets(options.input, SETS)
    paths = [path for name in (options.sets if not options.input else found) for path in found[name]]
    table = Table(
        title=f"encode stage, {options.megabytes:,} MB of text, {options.cores} cores, shards of {options.shard_size}"
    )
    for column in (
        "vocabulary",
        "shards",
        "kernel cold MB/s",
        "kernel MB/s",
        "first call s",
        "call s",
        "stage s",
        "stage MB/s",
        "of kernel × cores",
    ):
        table.add_column(column, justify="right")
    session = load_config(None, {"input": ["-"], "output": "-", "master": f"local[{options.cores}]"})
    with tempfile.TemporaryDirectory() as temporary, lazy_session(session, "benchmark") as get_spark:
        directory = options.directory or Path(temporary)
        corpus = directory / f"corpus-{options.megabytes}"
        if not corpus.exists():
            write_corpus(paths, options.megabytes, corpus)
        for vocabulary in options.vocabularies:
            source = vocabulary_path(vocabulary)
            engine = load(source).engine
            words = directory / f"words-{options.megabytes}-{engine.fingerprint[:12]}"
            settings = {"input": [str(corpus)], "count.output": str(words), "pretokenizer": engine.pretokenizer}
            config = load_config(None, settings | {"normalizer": engine.normalizer})
            if not (words / "words.json").exists():
                count(get_spark, config)
            if options.prepare:
                continue
            settings = {"input": [str(corpus)], "encode.tokenizer": source, "encode.warm_words": str(words)}
            settings["encode.shard_size"] = options.shard_size
            for row in measure(get_spark, load_config(None, settings), options, Path(temporary)):
                table.add_row(vocabulary, *row)
    if not options.prepare:
        Console(width=150).print(table)


def vocabulary_path(name: str) -> str:
    path = Path(os.environ.get("SHARDPIECE_SHARED", "../shared")) / "vocabs" / name
    return str(path if path.exists() else Path(name))


if __name__ == "__main__":
    main()
