"""The encode stage beside what else turns a corpus into token files: datatrove, Megatron-style loops, the same with gigatoken.

    python -m benchmarks.preprocess [--megabytes 100] [--cores 2] [--repeats 2] [--only NAME ...] [--directory DIR]
                                    [--rivals-python PYTHON] [--tokenizer lenml-llama3_1 --eos '<|end_of_text|>']

All read the same documents in the same order (the shared corpora, or --input), we and datatrove from Parquet, the loops from
JSON Lines, and write the ids of every document with the end-of-text token behind it; that these are the same ids is checked.
MB/s are of the text, without the start: of ours Spark, the workers and their kernels, of the others importing, their
processes and reading the tokenizer; it is what the same run takes with the first few documents alone, and stands apart.
CPU seconds are those of all processes together, less the start's, and say more on a machine that others use too. The shortest
time of --repeats. --rivals-python: an interpreter that has datatrove, tokenizers and gigatoken, if this one has not.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from tests.conftest import ROOT

from benchmarks.corpora import sets
from benchmarks.encode_stage import SETS, vocabulary_path
from benchmarks.preprocess_rivals import ids_checksum
from shardpiece.config import load_config
from shardpiece.pipeline.encode.stage import encode
from shardpiece.pipeline.session import lazy_session

OURS = ("bin", "megatron")
RIVALS = ("datatrove", "loop", "gigatoken", "gigatoken-batches")
_FEW = 20


def write_corpus(paths: list[Path], megabytes: float, directory: Path) -> None:
    """Documents spread over the files as Parquet files of 8 MB or more, four at least, and as one JSON Lines file."""
    text = pa.concat_tables([pq.read_table(path, columns=["text"]) for path in paths])["text"].drop_null()
    # Text that spells a special token is text to us and a token to the others: no matter of speed.
    texts = [text for text in text.to_pylist() if "<|" not in text and text]
    order = np.random.default_rng(1).permutation(len(texts))
    sizes = np.array([len(texts[i].encode()) for i in order])
    chosen = [texts[i] for i in order[: np.searchsorted(np.cumsum(sizes), megabytes * 1e6)]]
    for name, part in (("all", chosen), ("few", chosen[:_FEW])):
        place = directory / name
        place.mkdir(parents=True)
        files = max(4, int(megabytes) // 8) if name == "all" else 2
        for i, rows in enumerate(np.array_split(np.arange(len(part)), files)):
            table = pa.table({"id": [str(r) for r in rows], "text": [part[r] for r in rows]})
            pq.write_table(table, place / f"part-{i:05}.parquet", compression="zstd")
        (directory / "lines" / name).mkdir(parents=True)
        with (directory / "lines" / name / "corpus.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"id": str(i), "text": t}, ensure_ascii=False) + "\n" for i, t in enumerate(part)
            )
        (directory / f"{name}.bytes").write_text(str(sum(len(t.encode()) for t in part)))


def ours(name: str, options, directory: Path) -> dict:
    """Seconds of the start (with few documents) and of all documents, in one session; the ids' checksum."""
    settings = {"encode.tokenizer": options.tokenizer, "encode.append_eos": True, "encode.eos_token": options.eos,
                "encode.format": name, "encode.shard_size": "16MB", "master": f"local[{options.cores}]"}  # fmt: skip
    times, cpu = [], []
    began, used = time.perf_counter(), cpu_of_all()
    with lazy_session(load_config(None, settings | {"input": ["-"], "output": "-"}), "benchmark") as session:
        for i, corpus in enumerate(["few", "few", *["all"] * options.repeats]):
            output = directory / f"{name}-{i}"
            config = load_config(None, settings | {"input": [str(directory / corpus)], "encode.output": str(output)})
            encode(session, config)
            times.append(time.perf_counter() - began)
            cpu.append(cpu_of_all() - used)
            began, used = time.perf_counter(), cpu_of_all()
    files = sorted(output.rglob("*.bin"))
    dtype = "<u4" if name == "bin" else "<i4"
    seconds, cpu_seconds = (min(found[2:]) - found[1] for found in (times, cpu))
    return {"start": times[0], "seconds": seconds, "cpu": cpu_seconds, "ids": ids_checksum(files, dtype)}


def cpu_of_all() -> float:
    """CPU seconds of this process and all below it."""
    this = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (this, *this.children(recursive=True)))


def rival(name: str, options, directory: Path) -> dict:
    def run(corpus: str) -> dict:
        output = directory / f"{name}-{corpus}"
        place = "." if name == "datatrove" else "lines"
        shutil.rmtree(output, ignore_errors=True)
        began, used = time.perf_counter(), os.times()
        done = subprocess.run(
            [options.rivals_python, "-m", "benchmarks.preprocess_rivals", name, str(directory / place / corpus), str(output),
             f"{options.tokenizer}/tokenizer.json", options.eos, str(options.cores)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr[-2000:]}")
        now = os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        return json.loads(done.stdout.splitlines()[-1]) | {"process": time.perf_counter() - began, "cpu": cpu}

    few = run("few")
    full = [run("all") for _ in range(options.repeats)]
    seconds = min(r["seconds"] for r in full) - few["seconds"]
    cpu = min(r["cpu"] for r in full) - few["cpu"]
    return {"start": few["process"], "seconds": seconds, "cpu": cpu, "ids": full[-1]["ids"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=(*OURS, *RIVALS), default=[*OURS, *RIVALS])
    parser.add_argument("--tokenizer", default="lenml-llama3_1", help="directory with a tokenizer.json")
    parser.add_argument("--eos", default="<|end_of_text|>")
    parser.add_argument("--rivals-python", default=sys.executable)
    parser.add_argument(
        "--directory", type=Path, help="where corpus and results stay; those there are not measured again"
    )
    options = parser.parse_args()
    options.tokenizer = vocabulary_path(options.tokenizer)
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or Path(temporary)
        if not (directory / "all").exists():
            found = sets(options.input, SETS)
            write_corpus([path for paths in found.values() for path in paths], options.megabytes, directory)
        for name in options.only:
            if not (directory / f"{name}.json").exists():
                result = ours(name, options, directory) if name in OURS else rival(name, options, directory)
                (directory / f"{name}.json").write_text(json.dumps(result))
        report(directory, options.cores)


def report(directory: Path, cores: int) -> None:
    size = int((directory / "all.bytes").read_text())
    results = {name: json.loads((directory / f"{name}.json").read_text()) for name in (*OURS, *RIVALS)
               if (directory / f"{name}.json").exists()}  # fmt: skip
    table = Table(title=f"corpus to token files, {size / 1e6:,.0f} MB of text, {cores} cores")
    for column in ("", "start s", "s", "CPU s", "MB/s", "× the time", "× the CPU", "same ids"):
        table.add_column(column, justify="right")
    first = next(iter(results.values()))
    for name, result in results.items():
        table.add_row(
            name, f"{result['start']:.1f}", f"{result['seconds']:.1f}", f"{result['cpu']:.1f}", f"{size / result['seconds'] / 1e6:.1f}",
            f"{result['seconds'] / first['seconds']:.1f}", f"{result['cpu'] / first['cpu']:.1f}", "yes" if result["ids"] == first["ids"] else "NO",
        )  # fmt: skip
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
