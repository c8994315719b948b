"""Which files a job reads, and what they are: globs and directories, expanded in one sorted order."""

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from shardpiece import storage
from shardpiece.errors import ConfigError, InputError

AUTO = "auto"
# Format → how names of its files end, before the ending of a compression.
ENDINGS = {
    "parquet": (".parquet",),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "text": (".txt",),
    "arrow": (".arrow", ".feather", ".ipc"),
}
INPUT_FORMATS = (AUTO, *ENDINGS)
# Ending → Arrow's name of the compression. Parquet and Arrow files are compressed inside.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_OF_LINES = ("jsonl", "text")
# What may be a README or settings as well is not taken from a directory without being told to.
_AMBIGUOUS = (".txt", ".json", ".txt.gz", ".txt.zst")
_DATAFRAMES = ("table:", "sql:")
Wanted = Callable[[str], bool]


@dataclass(frozen=True, order=True)
class SourceFile:
    """One input file: its path or URL, its size in bytes, and its format, one of ``ENDINGS``."""

    path: str
    size: int
    format: str = "parquet"


def compression_of(path: str) -> str:
    """Arrow's name of a file's compression, "" without one."""
    return next((name for ending, name in COMPRESSIONS.items() if path.endswith(ending)), "")


def format_of(path: str, input_format: str = AUTO) -> str:
    """A file's format: the one that is set, else by its ending, else Parquet."""
    if input_format != AUTO:
        return input_format
    return next((name for name in ENDINGS if _ends_like(path, name)), "parquet")


def is_source(path: str) -> bool:
    """Whether a name ends like a file of any format."""
    return any(_ends_like(path, name) for name in ENDINGS)


def dataframe_of(patterns: list[str]) -> str | None:
    """The one ``table:NAME`` or ``sql:QUERY`` that is the input, None for files. Raises ConfigError for mixtures."""
    found = [pattern for pattern in patterns if pattern.startswith(_DATAFRAMES)]
    if found and len(patterns) > 1:
        raise ConfigError(f"input: {found[0]!r} must be the only input (in SQL, UNION ALL joins several)")
    if found and not found[0].partition(":")[2].strip():
        raise ConfigError(f"input: {found[0]!r} names no table or query")
    return found[0] if found else None


def partition_values(path: str) -> dict[str, str | None]:
    """The columns that directories named key=value (as Hive and Spark write them) add to a file: text as it is spelled,
    %XX decoded, null for Hive's default partition."""
    values: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if name and equals:
            values[unquote(name)] = None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)
    return values


def _ends_like(path: str, input_format: str, directory: bool = False) -> bool:
    endings = [*ENDINGS[input_format]]
    if input_format in _OF_LINES:
        endings += [ending + more for ending in endings for more in COMPRESSIONS]
    if directory:
        endings = [ending for ending in endings if ending not in _AMBIGUOUS]
    return path.endswith(tuple(endings))


def list_files(patterns: list[str], input_format: str = AUTO) -> list[SourceFile]:
    """Expand paths, directories and globs into files sorted by path.

    Of a directory every file below that ends like ``input_format`` is taken; with "auto", like any format, but for .txt
    and plain .json. Files that a path or glob names are taken whatever they are called. A file that several patterns match
    is read once. Raises InputError naming the pattern that matches nothing.
    """
    if not patterns:
        raise InputError("no input given: pass --input with a path, a directory or a glob")
    found: dict[str, SourceFile] = {}
    for pattern in patterns:
        matches = _expand(pattern, input_format)
        if not matches:
            wanted = {AUTO: "Parquet, JSON Lines or Arrow", "parquet": "Parquet", "jsonl": "JSON Lines",
                      "text": "text", "arrow": "Arrow"}[input_format]  # fmt: skip
            raise InputError(
                f"{pattern}: no {wanted} file matches. Quote globs so that the shell leaves them alone, "
                f"check the path ('**' crosses directories), and set input_format to read .txt or .json files below a "
                f"directory."
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


def _expand(pattern: str, input_format: str) -> list[SourceFile]:
    fs, inner = storage.filesystem(pattern)

    def wanted(name: str) -> bool:
        kinds = ENDINGS if input_format == AUTO else (input_format,)
        return any(_ends_like(name, kind, directory=input_format == AUTO) for kind in kinds)

    if storage.is_local(pattern):
        found = _expand_local(pattern, inner, wanted)
    else:
        found = _expand_remote(fs, inner, wanted)
    files = []
    for path, size in found:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InputError(f"{path!a}: a file name that is not UTF-8; rename it") from None
        files.append(SourceFile(path, size, format_of(path, input_format)))
    return files


def _expand_local(pattern: str, path: str, wanted: Wanted) -> list[tuple[str, int]]:
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
            for name in _walk(root, wanted) if os.path.isdir(root) else [root]:
                found[name] = os.path.getsize(name)
    except OSError as error:
        raise InputError(f"{error.filename}: not readable ({error.strerror})") from None
    return list(found.items())


def _walk(root: str, wanted: Wanted) -> Iterator[str]:
    """The files below a directory that are wanted, each directory once however it is linked to."""
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
        yield from (os.path.join(directory, n) for n in sorted(names) if wanted(n) and not _hidden(n))


def _expand_remote(fs, inner: str, wanted: Wanted) -> list[tuple[str, int]]:
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
            below = {path: entry for path, entry in entries.items() if wanted(path)}
        for path, entry in below.items():
            if not _hidden(path[len(root) :]):
                found[fs.unstrip_protocol(path)] = int(entry["size"] or 0)
    return list(found.items())


def _hidden(name: str) -> bool:
    """Names that start with _ or . are bookkeeping by the convention of Spark, Hive and ours."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))
