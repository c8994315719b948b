"""Files of lines, byte by byte: which lines belong to a split, and where they begin.

A line ends with a line feed, the last one with the file; a carriage return before it belongs to the end. Nothing else ends
a line (U+2028 does not, a lone carriage return does not). A byte order mark at the front of a file is not part of it.
A line belongs to the split in which its first byte lies, so every line is read once however a file is cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from shardpiece.corpus.base import SPLIT_BYTES, ByteRange, InputFile
from shardpiece.corpus.probe import probe
from shardpiece.corpus.sources import SourceFile, compression_of
from shardpiece.corpus.streams import BLOCK_BYTES, open_stream
from shardpiece.errors import InputError

BOM = b"\xef\xbb\xbf"
# Compressed text is about a third as long; only how shards are packed goes by this.
EXPANSION = 3
# Lines are mostly short: so much is read at a time to find the end of the last one.
_REST_BYTES = 64 << 10


def plan_lines(file: SourceFile, kind: str) -> tuple[InputFile, list[ByteRange]]:
    """The splits of a file of lines: ranges of 16 MiB, or a compressed file as a whole."""
    compression = compression_of(file.path)
    if compression and file.size == 0:
        raise InputError(f"an empty file, which no {compression} file is")
    planned = InputFile(file.path, file.size, -1, probe(file))
    if compression:
        return planned, [ByteRange(file.path, 0, file.size, kind, compression, EXPANSION * file.size)]
    n = -(-file.size // SPLIT_BYTES)
    borders = [file.size * i // n for i in range(n + 1)] if n else []
    return planned, [ByteRange(file.path, a, b, kind, "", b - a) for a, b in pairwise(borders) if b > a]


@dataclass(frozen=True)
class Lines:
    """Whole lines: ``data`` are bytes of the file from ``offset``, line i is data[starts[i]:ends[i]] without its end."""

    data: bytes
    offset: int
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def positions(self) -> np.ndarray:
        return self.offset + self.starts

    def line(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]]

    def texts(self) -> pa.LargeBinaryArray:
        """The lines as a column."""
        # Lines and what is between them by turns: of these every second one is taken.
        borders = np.empty(2 * len(self) + 1, np.int64)
        borders[0:-1:2], borders[1::2], borders[-1] = self.starts, self.ends, len(self.data)
        both = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), 2 * len(self), [None, pa.py_buffer(borders), pa.py_buffer(self.data)]
        )
        return both.take(pa.array(np.arange(0, 2 * len(self), 2)))


def read_lines(split: ByteRange, block_bytes: int = BLOCK_BYTES) -> Iterator[Lines]:
    """The lines of a split in batches of about ``block_bytes``, or one line. Cut at the same lines every time."""
    with open_stream(split.path, split.compression) as file:
        start = split.start
        end = None if split.compression else split.end
        if start:
            start = _next_line(file, start, split.end, block_bytes)
            if start is None:
                return
        yield from _whole_lines(file, start, end, block_bytes)


def read_document(split: ByteRange) -> bytes:
    """All of a file, less a byte order mark."""
    with open_stream(split.path, split.compression) as file:
        return file.read().removeprefix(BOM)


def _next_line(file, start: int, end: int, block_bytes: int) -> int | None:
    """Where the first line begins that does so at ``start`` or later, but before ``end``; ``file`` stands there then."""
    file.seek(start - 1)
    at = start - 1
    while at < end - 1:
        block = file.read(min(block_bytes, end - 1 - at))
        if not block:
            return None
        feed = block.find(b"\n")
        if feed >= 0:
            file.seek(at + feed + 1)
            return at + feed + 1
        at += len(block)
    return None


def _whole_lines(file, start: int, end: int | None, block_bytes: int) -> Iterator[Lines]:
    """The lines that begin from ``start``, where the file stands, to ``end``."""
    offset = at = start  # of what is pending, the beginning of a line; of what is read next
    pending: list[bytes] = []
    while block := file.read(block_bytes if end is None else min(block_bytes, end - at)):
        at += len(block)
        if at == end:
            pending += [block, *_rest_of_line(file, block)]
            break
        feed = block.rfind(b"\n") + 1
        pending.append(block[:feed] if feed else block)
        if feed:
            data = b"".join(pending)
            yield from _cut(data, offset)
            offset += len(data)
            pending = [block[feed:]]
    yield from _cut(b"".join(pending), offset)


def _rest_of_line(file, block: bytes) -> Iterator[bytes]:
    """What follows a block that may end in the middle of a line, to the end of that."""
    while block and not block.endswith(b"\n"):
        block = file.read(_REST_BYTES)
        feed = block.find(b"\n") + 1
        block = block[:feed] if feed else block
        yield block


def _cut(data: bytes, offset: int) -> Iterator[Lines]:
    """Whole lines, or nothing where there is none."""
    if offset == 0 and data.startswith(BOM):
        data, offset = data[len(BOM) :], len(BOM)
    if not data:
        return
    raw = np.frombuffer(data, np.uint8)
    feeds = np.flatnonzero(raw == 10)
    ends = feeds if data.endswith(b"\n") else np.append(feeds, len(data))
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    # A carriage return goes only with a line feed: a last line without one keeps it.
    returns = (ends > starts) & (ends < len(data))
    returns[returns] = raw[ends[returns] - 1] == 13
    yield Lines(data, offset, starts, ends - returns)
