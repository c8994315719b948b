"""Which files a job reads: globs and directories, expanded in one sorted order."""

from dataclasses import dataclass

from shardpiece import storage
from shardpiece.errors import InputError


@dataclass(frozen=True, order=True)
class SourceFile:
    """One input file: its path or URL, and its size in bytes."""

    path: str
    size: int


def list_files(patterns: list[str]) -> list[SourceFile]:
    """Expand paths, directories (every .parquet file below) and globs into files sorted by path.

    A file that several patterns match is read once. Raises InputError naming the pattern that matches nothing.
    """
    if not patterns:
        raise InputError("no input given: pass --input with a path, a directory or a glob")
    found: dict[str, SourceFile] = {}
    for pattern in patterns:
        matches = _expand(pattern)
        if not matches:
            raise InputError(
                f"{pattern}: no Parquet file matches. Quote globs so that the shell leaves them alone, "
                f"and check the path ('**' crosses directories)."
            )
        found.update((file.path, file) for file in matches)
    return sorted(found.values())


def _expand(pattern: str) -> list[SourceFile]:
    fs, inner = storage.filesystem(pattern)
    local = storage.is_local(pattern)
    try:
        if any(c in pattern for c in "*?["):
            entries = fs.glob(inner, detail=True)
        elif fs.isdir(inner):
            entries = fs.glob(inner.rstrip("/") + "/**/*.parquet", detail=True)
        elif fs.exists(inner):
            entries = {inner: fs.info(inner)}
        else:
            entries = {}
    except PermissionError as error:
        raise InputError(f"{pattern}: not readable ({error})") from None
    files = []
    for name, info in entries.items():
        base = name.rstrip("/").rsplit("/", 1)[-1]
        # Names that start with _ or . are bookkeeping by the convention of Spark, Hive and ours.
        if info["type"] != "file" or base.startswith(("_", ".")):
            continue
        files.append(SourceFile(name if local else fs.unstrip_protocol(name), int(info["size"] or 0)))
    return files
