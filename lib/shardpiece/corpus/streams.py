"""Files as streams of bytes, decompressed on the way."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import IO

import pyarrow as pa

from shardpiece import storage

BLOCK_BYTES = 4 << 20
_READ_AHEAD = 8 << 20


@contextmanager
def open_stream(path: str, compression: str) -> Iterator[IO[bytes]]:
    """A file's bytes, decompressed."""
    fs, inner = storage.filesystem(path)
    with ExitStack() as stack:
        if compression:
            if storage.is_local(path):
                source = stack.enter_context(pa.OSFile(inner))
            else:
                remote = stack.enter_context(fs.open(inner, "rb", block_size=_READ_AHEAD))
                source = stack.enter_context(pa.PythonFile(remote, "r"))
            yield stack.enter_context(closing(pa.CompressedInputStream(source, compression)))
        else:
            # Every read asks a store for what it wants, and no more.
            options = {} if storage.is_local(path) else {"cache_type": "none"}
            yield stack.enter_context(fs.open(inner, "rb", **options))


def line_number(path: str, compression: str, position: int) -> int:
    """The number, from 1, of the line that begins at a byte. It reads all that is before."""
    lines, left = 1, position
    with open_stream(path, compression) as file:
        while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
            lines += block.count(b"\n")
            left -= len(block)
    return lines
