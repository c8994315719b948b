"""The texts that benchmarks run on: the user's Parquet files or the shared corpora."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def sets(inputs: list[str] | None, groups: tuple[str, ...]) -> dict[str, list[Path]]:
    """Name → Parquet files. Exits with a line of advice when there are none."""
    if inputs:
        return {"input": [Path(path) for path in inputs]}
    shared = Path(os.environ.get("SHARDPIECE_SHARED", "../shared")) / "corpus"
    found = {group: sorted((shared / group).glob("*.parquet")) for group in groups}
    for group, paths in found.items():
        if not paths:
            raise SystemExit(f"no Parquet files for {group}: pass --input, or set SHARDPIECE_SHARED")
    return found


def read_texts(paths: list[Path], megabytes: float) -> list[str]:
    """Documents spread evenly over the files, about ``megabytes`` in all."""
    column = pa.concat_tables([pq.read_table(path, columns=["text"]) for path in paths])["text"].drop_null()
    step = max(1, int(column.nbytes / (megabytes * 1e6)))
    return column.take(pa.array(range(0, len(column), step))).to_pylist()
