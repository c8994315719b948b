"""Uploads to object stores: visible when complete, retried where a connection is cut, and never left half done."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# A part of an upload: each open file holds one or two in memory. A store takes 10,000 of them, 160 GB.
PART_BYTES = 16 << 20


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Stores' own libraries have exceptions of their own for a connection that cannot be made; callers expect OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


class Upload:
    """An object written piece by piece, there when ``commit`` returns. Raises OSError for whatever fails."""

    def __init__(self, fs, path: str):
        self._fs, self._path = fs, path
        # Closing completes an upload, also one that an exception has cut short, unless committing is left to us.
        with as_os_errors():
            self._file = fs.open(path, "wb", block_size=PART_BYTES, autocommit=False)

    def write(self, data) -> None:
        view = memoryview(data).cast("B")
        # Never more than a part at once: the buffer would grow to hold all of it.
        with as_os_errors():
            for start in range(0, len(view), PART_BYTES):
                self._file.write(view[start : start + PART_BYTES])

    def seal(self) -> None:
        """Send what is still here; ``commit`` is to follow."""
        with as_os_errors():
            self._file.close()

    def commit(self, size: int, same: Callable[[], bool]) -> None:
        """``size``: the object's bytes; ``same``: whether the content of the object that is there is this one."""
        with as_os_errors():
            self._file.close()
            try:
                self._file.commit()
            except FileNotFoundError:
                # A commit whose answer was lost is sent again, and the store no longer knows the upload, because it is done.
                # Or somebody has aborted it, and what is there is older.
                self._fs.invalidate_cache()
                if self._fs.info(self._path)["size"] != size or not same():
                    raise

    def discard(self) -> None:
        with suppress(Exception):  # the connection may be what has failed, and that is the error to tell
            self._file.discard()
        with suppress(AttributeError):
            self._file.closed = True  # or collecting it as garbage would close it, and fail


def abort_uploads(fs, directory: str, names: str) -> int:
    """Abort the uploads of files in ``directory`` whose names match the regular expression ``names``, begun by processes that
    were killed; gives their number. Nobody sees them, and they take space. Only S3 keeps such, and where the credentials do
    not allow listing them they are left to the bucket's lifecycle rules."""
    if not hasattr(fs, "abort_mpu"):
        return 0
    bucket, prefix, _ = fs.split_path(directory.rstrip("/") + "/")
    aborted, marker = 0, {}
    try:
        while True:
            page = fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **marker)
            for upload in page.get("Uploads", []):
                if re.fullmatch(names, upload["Key"][len(prefix) :]):
                    with suppress(FileNotFoundError):  # it has just been completed or aborted
                        fs.abort_mpu(bucket, upload["Key"], upload["UploadId"])
                        aborted += 1
            if not page.get("IsTruncated"):
                return aborted
            marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
    except (PermissionError, NotImplementedError):
        return aborted
