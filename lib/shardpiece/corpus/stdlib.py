"""A corpus that every machine has: the Python standard library's sources and documentation topics as Parquet."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardpiece import storage

SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), ("lang", pa.string())])
_FILES = 8
_ROW_GROUP_BYTES = 4 << 20


def write_corpus(directory: str) -> list[str]:
    """Write the corpus as eight Parquet files with the columns id, text and lang; null, empty and blank documents
    are among them. Returns the paths."""
    rows = [*_documents(), *_awkward()]
    paths = []
    for f in range(_FILES):
        path = storage.join(directory, f"part-{f:05}.parquet")
        storage.write_file(path, lambda file, f=f: _write(file, rows[f::_FILES]))
        paths.append(path)
    return paths


def _documents() -> Iterator[tuple[str, str, str]]:
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*")):
        relative = path.relative_to(library)
        if "site-packages" in relative.parts or path.suffix not in (
            ".py",
            ".txt",
            ".rst",
            ".html",
            ".c",
            ".h",
        ):
            continue
        try:
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        yield relative.as_posix(), text, "python" if path.suffix == ".py" else "other"
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name in sorted(topics):
        yield f"topics/{name}", topics[name], "english"


def _awkward() -> Iterator[tuple[str, str | None, str]]:
    """What real corpora have too."""
    for i in range(40):
        yield f"awkward/{i}", (None, "", "\n", " \t ")[i % 4], "awkward"
    yield "awkward/special", "text that spells <|endoftext|> stays text", "awkward"
    yield (
        "awkward/unicode",
        "naïve café, 日本語, Ελληνικά, हिन्दी, 👩‍👩‍👧 and \u202eright-to-left\u202c",
        "awkward",
    )


def _write(file, rows: list[tuple[str, str | None, str]]) -> None:
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        pending: list[tuple] = []
        size = 0
        for row in rows:
            pending.append(row)
            size += len(row[1] or "")
            if size > _ROW_GROUP_BYTES:
                writer.write_table(_table(pending))
                pending, size = [], 0
        if pending:
            writer.write_table(_table(pending))


def _table(rows: list[tuple]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=SCHEMA)
