"""Which files a job reads: globs and directories, expanded in one sorted order."""

import re
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
    fs.invalidate_cache()
    try:
        if fs.isfile(inner):  # also when its name has a bracket in it
            root, entries = inner, {inner: fs.info(inner)}
        elif fs.isdir(inner):
            root = inner.rstrip("/")
            entries = fs.find(root, detail=True)
            entries = {name: info for name, info in entries.items() if name.endswith(".parquet")}
        elif wild := re.search(r"[*?\[]", inner):
            root = inner[: wild.start()].rpartition("/")[0]
            entries = fs.glob(inner, detail=True)
        else:
            return []
    except PermissionError as error:
        raise InputError(f"{pattern}: not readable ({error.strerror or error})") from None
    files = []
    for name, info in entries.items():
        # Names that start with _ or . are bookkeeping by the convention of Spark, Hive and ours.
        hidden = any(part.startswith(("_", ".")) for part in name[len(root) :].split("/"))
        if info["type"] != "file" or hidden:
            continue
        path = name if storage.is_local(pattern) else fs.unstrip_protocol(name)
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InputError(f"{path!a}: a file name that is not UTF-8; rename it") from None
        files.append(SourceFile(path, int(info["size"] or 0)))
    return files
