"""Which files a job reads: globs and directories, expanded in one sorted order."""

import glob
import os
import re
import stat
from collections.abc import Iterator
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


def inside(directory: str, patterns: list[str]) -> str | None:
    """The input directory or ``**`` glob that would read what is written below ``directory``, None if there is none."""
    for pattern in patterns:
        root, recursive = _root(pattern)
        if recursive and (directory.rstrip("/") + "/").startswith(root.rstrip("/") + "/"):
            return pattern
    return None


def _root(pattern: str) -> tuple[str, bool]:
    """(the directory that a pattern's matches lie in, whether they may lie at any depth)."""
    fs, inner = storage.filesystem(pattern)
    if fs.isdir(inner):
        root, recursive = inner, True
    else:
        root, recursive = inner[: _wild(inner)].rpartition("/")[0], "**" in inner
    return root if storage.is_local(pattern) else fs.unstrip_protocol(root), recursive


def _wild(inner: str) -> int:
    found = re.search(r"[*?\[]", inner)
    return found.start() if found else len(inner)


def _expand(pattern: str) -> list[SourceFile]:
    fs, inner = storage.filesystem(pattern)
    if storage.is_local(pattern):
        found = _expand_local(pattern, inner)
    else:
        found = _expand_remote(fs, inner)
    files = []
    for path, size in found:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InputError(f"{path!a}: a file name that is not UTF-8; rename it") from None
        files.append(SourceFile(path, size))
    return files


def _expand_local(pattern: str, path: str) -> list[tuple[str, int]]:
    """Symbolic links are followed; a directory that cannot be read is an error, not a gap."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISDIR(mode):
            return [(path, os.path.getsize(path))]
        roots = [path]
    except PermissionError as error:
        raise InputError(f"{pattern}: not readable ({error.strerror})") from None
    except OSError:
        if _wild(path) == len(path):
            return []
        fixed = path[: _wild(path)].rpartition("/")[0]
        roots = [name for name in glob.glob(path, recursive=True) if not _hidden(name[len(fixed) :])]
    found: dict[str, int] = {}
    try:
        for root in roots:
            for name in _walk(root) if os.path.isdir(root) else [root]:
                found[name] = os.path.getsize(name)
    except OSError as error:
        raise InputError(f"{error.filename}: not readable ({error.strerror})") from None
    return list(found.items())


def _walk(root: str) -> Iterator[str]:
    """Parquet files below a directory, each directory once however it is linked to."""
    seen: set[str] = set()

    def fail(error: OSError) -> None:
        raise error

    for directory, directories, names in os.walk(root, onerror=fail, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen:
            directories.clear()
            continue
        seen.add(real)
        directories[:] = sorted(name for name in directories if not _hidden(name))
        yield from (os.path.join(directory, n) for n in sorted(names) if n.endswith(".parquet") and not _hidden(n))


def _expand_remote(fs, inner: str) -> list[tuple[str, int]]:
    fs.invalidate_cache()
    if fs.isfile(inner):
        return [(fs.unstrip_protocol(inner), int(fs.info(inner)["size"] or 0))]
    if _wild(inner) == len(inner):
        root, roots = inner.rstrip("/"), {inner.rstrip("/"): {"type": "directory"}}
    else:
        root = inner[: _wild(inner)].rpartition("/")[0]
        roots = fs.glob(inner, detail=True)
    found: dict[str, int] = {}
    for name, info in roots.items():
        below = {name: info}
        if info["type"] == "directory":
            entries = fs.find(name, detail=True)
            below = {path: entry for path, entry in entries.items() if path.endswith(".parquet")}
        for path, entry in below.items():
            if not _hidden(path[len(root) :]):
                found[fs.unstrip_protocol(path)] = int(entry["size"] or 0)
    return list(found.items())


def _hidden(name: str) -> bool:
    """Names that start with _ or . are bookkeeping by the convention of Spark, Hive and ours."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))
