"""Files anywhere fsspec reaches: local paths and s3://, gs://, abfs://, memory:// URLs, handled alike.

A write is visible whole or not at all: local files are written under a temporary name and renamed, object stores
publish an object when its upload is complete.
"""

import json
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import fsspec
import xxhash
from fsspec.implementations.local import LocalFileSystem

from shardpiece import object_store
from shardpiece.errors import ConfigError, FormatError, OutputError
from shardpiece.object_store import PART_BYTES, Upload

_LOCAL = ("file", "local")
# What a HeadedFile keeps in memory.
_HELD_BYTES = 16 << 20


def filesystem(path: str):
    """The fsspec file system of ``path`` and the path inside it. Raises ConfigError when its driver is missing."""
    if "://" not in path:
        # Not through fsspec's URL parser, which takes "::" in a name for a chain of file systems.
        return LocalFileSystem(), os.path.abspath(path)
    try:
        return fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise ConfigError(
            f"{path}: {error}. Install the extra for this store: pip install 'shardpiece[s3]', [gcs] or [azure]"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def is_local(path: str) -> bool:
    fs, _ = filesystem(path)
    protocol = fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)
    return any(name in _LOCAL for name in protocol)


def absolute(path: str) -> str:
    """``path`` made independent of the working directory: executors have another one."""
    return filesystem(path)[1] if is_local(path) else path.rstrip("/")


def join(directory: str, *names: str) -> str:
    return "/".join([directory.rstrip("/"), *names])


def exists(path: str) -> bool:
    fs, inner = filesystem(path)
    fs.invalidate_cache()  # other processes write too
    return fs.exists(inner)


def is_directory(path: str) -> bool:
    fs, inner = filesystem(path)
    fs.invalidate_cache()
    return fs.isdir(inner)


def list_names(directory: str) -> list[str]:
    """Sorted base names of what lies in a directory; empty when it does not exist."""
    fs, inner = filesystem(directory)
    fs.invalidate_cache()
    try:
        entries = fs.ls(inner, detail=False)
    except (FileNotFoundError, NotADirectoryError):
        return []
    # Object stores may list a marker for the directory itself.
    here = inner.rstrip("/")
    return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries if entry.rstrip("/") != here)


def tree(directory: str) -> dict[str, int]:
    """Name relative to the directory → bytes of every file below it, sorted."""
    fs, inner = filesystem(directory)
    fs.invalidate_cache()
    try:
        entries = fs.find(inner, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    here = inner.rstrip("/") + "/"
    found = {e["name"].removeprefix(here): int(e["size"] or 0) for e in entries.values() if e["type"] == "file"}
    return dict(sorted(found.items()))


def read_bytes(path: str) -> bytes:
    fs, inner = filesystem(path)
    return fs.cat_file(inner)


def read_json(path: str) -> dict:
    """Raises FormatError naming the file when it is missing or not a JSON object."""
    return read_json_and_checksum(path)[0]


def read_json_and_checksum(path: str) -> tuple[dict, str]:
    """The object and the checksum of its file, read once. Raises as ``read_json``."""
    try:
        raw = read_bytes(path)
        value = json.loads(raw)
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value, checksum_bytes(raw)


def read_manifest(path: str, kind: str, version: int, keys: dict[str, type]) -> dict:
    """A JSON file that says which format and version it is. Raises FormatError naming the file when that is another
    one, or when one of ``keys`` is missing or of another type."""
    manifest = read_json(path)
    if manifest.get("format") != kind or manifest.get("version") != version:
        raise FormatError(f"{path}: not a {kind} file of version {version}")
    for key, expected in keys.items():
        if not isinstance(manifest.get(key), expected):
            raise FormatError(f"{path}: damaged ({key!r} is missing or not a {expected.__name__})")
    for file in manifest.get("files", []):
        if (
            not isinstance(file, dict)
            or not isinstance(file.get("name"), str)
            or not isinstance(file.get("bytes"), int)
        ):
            raise FormatError(f"{path}: damaged ('files' has an entry without name and bytes)")
    return manifest


def canonical_json(value) -> bytes:
    """The one JSON spelling of a value that fingerprints are taken of."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def pretty_json(value) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def write_file(path: str, write: Callable[[IO[bytes]], None]) -> None:
    """Create ``path`` with what ``write`` puts into the open file, whole or not at all; parents are made.

    Raises OutputError when the place is not writable or full.
    """
    with staged(path) as file:
        write(file)


def write_bytes(path: str, data: bytes) -> None:
    """``write_file`` of these bytes; in object stores one request, which is whole or not at all by itself."""
    if is_local(path) or len(data) > PART_BYTES:
        write_file(path, lambda file: file.write(data))
        return
    fs, inner = filesystem(path)
    with _output_errors(path), object_store.as_os_errors():
        fs.pipe_file(inner, data)
    fs.invalidate_cache()


class _WriteOnly:
    """What pyarrow and NumPy ask of a file that is only written."""

    def flush(self) -> None:
        pass

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


class ChecksumWriter(_WriteOnly):
    """A write-only file that passes bytes on and keeps their number and XXH3-64."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._hash = xxhash.xxh3_64()
        self.size = 0
        self.closed = False

    def write(self, data) -> int:
        view = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        self._file.write(view)
        self._hash.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        self.closed = True

    @property
    def checksum(self) -> str:
        return f"xxh3:{self._hash.hexdigest()}"


class _LocalFile:
    """Written under a temporary name, renamed by ``commit``."""

    def __init__(self, path: str):
        self._path = path
        self._temporary = Path(f"{path}.{uuid.uuid4().hex[:12]}.tmp")
        self._temporary.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._temporary.open("wb")
        self.write = self._file.write

    def seal(self) -> None:
        self._file.close()

    def commit(self, size: int, same: Callable[[], bool]) -> None:
        self._file.close()
        self._temporary.replace(self._path)

    def discard(self) -> None:
        with suppress(OSError):  # of what could not be written
            self._file.close()
        self._temporary.unlink(missing_ok=True)


class StagedFile(_WriteOnly):
    """A file written piece by piece that is visible under its name once it is committed, and not at all before or without.

    Raises OutputError, naming the file, when the place is not writable or full."""

    def __init__(self, path: str):
        self._path = path
        fs, inner = filesystem(path)
        with _output_errors(path):
            self._file = _LocalFile(inner) if is_local(path) else Upload(fs, inner)
        self._out = ChecksumWriter(self._file)
        self._open = True

    def write(self, data) -> int:
        with _output_errors(self._path):
            return self._out.write(data)

    def seal(self) -> None:
        """Say that the file is complete: what can fail for want of room fails here, and nothing is visible yet."""
        with _output_errors(self._path):
            self._file.seal()

    def commit(self) -> None:
        with _output_errors(self._path):
            self._file.commit(self.size, lambda: checksum(self._path) == self.checksum)
        self._open = False

    def discard(self) -> None:
        """Leave nothing behind; nothing happens after ``commit``."""
        if self._open:
            self._open = False
            self._file.discard()

    # What pyarrow and NumPy ask of a file.
    closed = False

    def tell(self) -> int:
        return self._out.size

    def close(self) -> None:
        pass

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._out.size

    @property
    def checksum(self) -> str:
        """Of what was written so far."""
        return self._out.checksum


class HeadedFile:
    """A StagedFile whose first bytes are known only when all others are, such as a count of what follows.

    A file in an object store cannot be changed, so the content waits in memory, from 16 MB on in an unnamed temporary file
    (in the first of Spark's local directories, else in TMPDIR), until ``seal`` is told the header."""

    def __init__(self, path: str):
        self._path = path
        local = [name for name in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(name)]
        self._directory = local[0] if local else tempfile.gettempdir()
        self._content = tempfile.SpooledTemporaryFile(_HELD_BYTES, dir=self._directory, prefix="shardpiece-")  # noqa: SIM115
        self._staged: StagedFile | None = None
        self.content_bytes = 0

    def write(self, data) -> int:
        view = memoryview(data).cast("B")
        try:
            self._content.write(view)
        except OSError as error:
            raise OutputError(
                f"{self._path}: the temporary file for it, in {self._directory}, cannot be written "
                f"({error.strerror or error}). Make room there, or set TMPDIR or spark.local.dir"
            ) from error
        self.content_bytes += len(view)
        return len(view)

    def seal(self, header: bytes) -> StagedFile:
        """The complete file, which is still to be committed."""
        self._staged = StagedFile(self._path)
        self._staged.write(header)
        self._content.seek(0)
        while block := self._content.read(1 << 22):
            self._staged.write(block)
        self._content.close()
        self._staged.seal()
        return self._staged

    def discard(self) -> None:
        self._content.close()
        if self._staged is not None:
            self._staged.discard()


@contextmanager
def staged(path: str) -> Iterator[StagedFile]:
    """A StagedFile that is committed at the end, and discarded on errors."""
    file = StagedFile(path)
    try:
        yield file
        file.commit()
    except BaseException:
        file.discard()
        raise


@contextmanager
def _output_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror or error})") from error


def write_files(directory: str, files: Mapping[str, bytes]) -> None:
    """Write files by name, in their order; a local directory that is not there yet appears with all of them at once."""
    new = is_local(directory) and not exists(directory)
    place = f"{directory.rstrip('/')}.{uuid.uuid4().hex[:12]}.tmp" if new else directory
    try:
        for name, content in files.items():
            write_bytes(join(place, name), content)
        if new:
            Path(filesystem(place)[1]).rename(filesystem(directory)[1])
    except BaseException as error:
        if new:
            remove(place)
        if isinstance(error, OSError):
            raise OutputError(f"{directory}: cannot be written ({error.strerror or error})") from error
        raise


def remove(path: str) -> None:
    """Remove a file or a directory with all it holds; nothing happens where there is none."""
    fs, inner = filesystem(path)
    if fs.exists(inner):
        fs.rm(inner, recursive=True)
    fs.invalidate_cache()


def abort_uploads(directory: str, names: str) -> int:
    """See ``object_store.abort_uploads``; local directories have no uploads."""
    fs, inner = filesystem(directory)
    return object_store.abort_uploads(fs, inner, names)


def remove_empty(directory: str) -> None:
    """Remove the directories below a local one that hold nothing; object stores have none."""
    if is_local(directory):
        root = Path(filesystem(directory)[1])
        for path in sorted(root.rglob("*/"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):  # not empty
                    path.rmdir()


def check_writable(directory: str) -> None:
    """Write and remove a small file in ``directory``, or where it would be made. Raises OutputError naming it."""
    place = directory
    if is_local(directory):
        path = Path(filesystem(directory)[1])
        while not path.exists() and path != path.parent:
            path = path.parent
        place = str(path)
    probe = join(place, f".shardpiece-{uuid.uuid4().hex[:12]}")
    try:
        write_bytes(probe, b"")
        remove(probe)
    except (OSError, OutputError) as error:
        reason = error.__cause__ or error
        raise OutputError(
            f"{directory}: this output cannot be written ({getattr(reason, 'strerror', None) or reason}). "
            f"Choose another --output or change its permissions."
        ) from None


def checksum(path: str) -> str:
    """XXH3-64 of a file's content, as in manifests."""
    fs, inner = filesystem(path)
    state = xxhash.xxh3_64()
    with fs.open(inner, "rb") as file:
        while block := file.read(1 << 22):
            state.update(block)
    return f"xxh3:{state.hexdigest()}"


def checksum_bytes(data: bytes) -> str:
    """What ``checksum`` gives for a file of this content."""
    return f"xxh3:{xxhash.xxh3_64(data).hexdigest()}"
