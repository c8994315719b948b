"""The doctor: what this machine has, what is wrong with it, how to mend it."""

import importlib
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable

from rich.console import Console

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.errors import ShardpieceError, one_line
from shardpiece.kernel_cache import CACHE_DIRECTORY
from shardpiece.pipeline.java import find_java
from shardpiece.pipeline.kernels import exercise
from shardpiece.resources import conf_file

_PACKAGES = ("pyspark", "pandas", "pyarrow", "numpy", "numba", "regex", "fsspec", "click", "pydantic", "PyYAML", "rich",
             "xxhash")  # fmt: skip
_STORES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}


def examine(paths: list[str]) -> bool:
    """Print one line per check; True when nothing that a job needs is wrong."""
    console = Console(highlight=False, soft_wrap=True)
    well = True
    for name, check in _checks(paths):
        try:
            verdict, message = "[green]ok[/]   ", check()
        except Exception as error:
            well = False
            verdict, message = "[red]WRONG[/]", one_line(error)
        console.print(f"{verdict}  {name}: ", end="")
        console.print(message, markup=False)
    console.print("Everything a job needs is here." if well else "Mend what is marked WRONG, then run me again.")
    return well


def _checks(paths: list[str]) -> list[tuple[str, Callable[[], str]]]:
    return [
        ("Python", _python),
        ("packages", _packages),
        ("Java", lambda: "{} (Java {})".format(*find_java())),
        ("Numba kernels", _kernels),
        ("Spark", _spark),
        ("file systems", _stores),
        *((path, lambda path=path: _reach(path)) for path in paths),
    ]


def _python() -> str:
    return f"{sys.version.split()[0]} at {sys.executable}; executors run {os.environ.get('PYSPARK_PYTHON', 'the same')}"


def _packages() -> str:
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            raise ShardpieceError(f"{name} is missing: pip install shardpiece") from None
    return ", ".join(found)


def _kernels() -> str:
    began = time.monotonic()
    if not exercise():
        raise ShardpieceError(f"the kernels give wrong results: remove their cache, {CACHE_DIRECTORY}, and try again")
    return f"give right results in {time.monotonic() - began:.1f} s, cached in {CACHE_DIRECTORY}"


def _spark() -> str:
    from shardpiece.pipeline.session import lazy_session

    began = time.monotonic()
    with lazy_session(JobConfig(master="local[1]"), "doctor") as session:
        spark = session()
        seen = spark.range(2).mapInArrow(_interpreter, "python string").collect()
        version = spark.version
    if any(row.python != sys.executable for row in seen) and "PYSPARK_PYTHON" not in os.environ:
        raise ShardpieceError(f"workers run {seen[0].python}, not {sys.executable}: set PYSPARK_PYTHON")
    quiet = "" if conf_file("log4j2.properties") else " (log4j2.properties not found: the console may be noisy)"
    return f"{version} starts, and its Python worker answers, in {time.monotonic() - began:.1f} s{quiet}"


def _interpreter(batches):
    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([sys.executable] * batch.num_rows)], names=["python"])


def _stores() -> str:
    have = ["local"]
    missing = []
    for scheme, package in _STORES.items():
        try:
            importlib.import_module(package)
            have.append(f"{scheme}://")
        except ImportError:
            missing.append(f"{scheme}:// (pip install {package})")
    return ", ".join(have) + (f"; not installed: {', '.join(missing)}" if missing else "")


def _reach(path: str) -> str:
    names = storage.list_names(storage.absolute(path))
    if not names and not storage.exists(path):
        raise ShardpieceError("nothing is there, or it is not readable: check the path and the credentials")
    return f"reachable, {len(names)} entries" if names else "reachable"
