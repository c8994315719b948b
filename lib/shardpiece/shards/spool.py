"""Rows that wait until their order is known, in bounded memory.

What does not fit goes to a temporary file without a name, which is gone with the process whatever ends it. Rows come back in any
order in two sequential passes (distribution, as in external sorting: Knuth 1973, vol. 3, 5.4): the first deals the rows
out to windows of the new order, small enough for memory; the second puts each window in order.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardpiece.errors import OutputError, ShardpieceError
from shardpiece.shards.formats.base import TokenBatch
from shardpiece.shards.rows import from_arrow, to_arrow

# Of the memory: what is held without a file (copied once when the order is known), and blocks and windows beside it.
_HELD, _BLOCK = 3, 8
_MOST_HELD, _MOST_BLOCK = 1 << 30, 32 << 20  # the first also keeps 32-bit string offsets from overflowing
_MOST_PENDING = 1024


class RowSpool:
    """``memory``: bytes that rows take at most, whatever their number, and beside it some hundred bytes per row while they are put
    in order; a row that is larger than an eighth of it is in memory as a whole. ``directory``: of the temporary files; by default Spark's local one, else the system's."""

    def __init__(self, memory: int, directory: str | None = None):
        self._most_held = min(memory // _HELD, _MOST_HELD)
        self._block = max(1, min(memory // _BLOCK, _MOST_BLOCK))
        self._directory = directory
        self._dtype: np.dtype | None = None
        self._schema: pa.Schema | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._file: _BatchFile | None = None
        self._lengths: list[np.ndarray] = []
        self._other_bytes = 0

    def __enter__(self) -> "RowSpool":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Give the rows and the file up."""
        self._pending, self._held = [], []
        if self._file is not None:
            self._file.close()

    def lengths(self) -> np.ndarray:
        """Tokens of every row added so far: int64 [rows]."""
        self._lengths = [np.concatenate([np.empty(0, np.int64), *self._lengths])]
        return self._lengths[0]

    @property
    def spilled_bytes(self) -> int:
        """Size of the temporary file; 0 while everything is in memory."""
        return 0 if self._file is None else self._file.size

    def add(self, batch: TokenBatch) -> None:
        """Raises OutputError when the temporary file cannot be written."""
        lengths = np.diff(batch.offsets)
        if not len(lengths):
            return
        rows = to_arrow(batch)
        if self._dtype is None:
            self._dtype, self._schema = batch.tokens.dtype, rows.schema
        elif (batch.tokens.dtype, rows.schema) != (self._dtype, self._schema):
            raise ShardpieceError("batches of one shard differ in their columns or in the type of their tokens")
        self._lengths.append(lengths)
        other = rows.nbytes - batch.tokens.nbytes
        self._other_bytes += other
        sizes = lengths * self._dtype.itemsize + other // len(lengths)
        start = 0
        for end in _windows(sizes, np.arange(1, len(sizes) + 1), self._block).tolist():
            self._pending.append(rows.slice(start, end - start))
            self._pending_bytes += int(sizes[start:end].sum())
            if self._pending_bytes >= self._block or len(self._pending) >= _MOST_PENDING:
                self._seal()
            start = end

    def _seal(self) -> None:
        """Make one block of the pending rows, in memory or in the file."""
        if not self._pending:
            return
        block = pa.concat_batches(self._pending)
        size = self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if self._file is None and self._held_bytes + size > self._most_held:
            self._file = _BatchFile(self._directory)
            for held in self._held:
                self._file.write(held)
            self._held, self._held_bytes = [], 0
        if self._file is not None:
            self._file.write(block)
        else:
            self._held.append(block)
            self._held_bytes += size

    def take(self, order: np.ndarray, ends: np.ndarray | None = None) -> Iterator[TokenBatch]:
        """The rows of these numbers in this order (int64, each at most once), in batches that end where ``ends`` (int64,
        ascending, the last is len(order); by default everywhere) allows it. Nothing is added afterwards."""
        if not len(order):
            return
        self._seal()
        if ends is None:
            ends = np.arange(1, len(order) + 1)
        lengths = self.lengths()
        sizes = lengths[order] * self._dtype.itemsize + self._other_bytes // len(lengths)
        bounds = _windows(sizes, ends, self._block)
        if self._file is not None:
            windows = self._distributed(order, bounds)
        else:
            if len(self._held) > 1:
                self._held = [pa.concat_batches(self._held)]
            starts = np.concatenate([[0], bounds[:-1]])
            windows = (self._held[0].take(pa.array(order[a:b])) for a, b in zip(starts, bounds, strict=True))
        for rows in windows:
            yield from_arrow(rows, self._dtype)

    def _distributed(self, order: np.ndarray, bounds: np.ndarray) -> Iterator[pa.RecordBatch]:
        window_of = np.full(len(self.lengths()), -1, np.int32)
        window_of[order] = np.repeat(np.arange(len(bounds), dtype=np.int32), np.diff(bounds, prepend=0))
        with closing(_BatchFile(self._directory)) as file:
            parts: list[list[_Part]] = [[] for _ in bounds]
            first = 0
            for part in self._file.parts:
                windows = window_of[first : first + part.rows]
                first += part.rows
                dealt = np.argsort(windows, kind="stable")
                dealt = dealt[np.searchsorted(windows[dealt], 0) :]
                if not len(dealt):
                    continue
                block = self._file.read(part, self._schema)
                numbers, starts = np.unique(windows[dealt], return_index=True)
                for window, rows in zip(numbers.tolist(), np.split(dealt, starts[1:]), strict=True):
                    parts[window].append(file.write(block.take(pa.array(rows))))
            start = 0
            for window, end in enumerate(bounds.tolist()):
                rows = pa.concat_batches([file.read(part, self._schema) for part in parts[window]])
                # The window's rows lie there in the order they were added in.
                wanted = order[start:end]
                place = np.empty(len(wanted), np.int64)
                place[np.argsort(wanted)] = np.arange(len(wanted))
                yield rows.take(pa.array(place))
                start = end


def _windows(sizes: np.ndarray, ends: np.ndarray, limit: int) -> np.ndarray:
    """Those of the ``ends`` that cut rows of these sizes into windows of about ``limit`` bytes."""
    filled = np.cumsum(sizes)[ends - 1]
    number = np.concatenate([[0], filled[:-1]]) // limit
    return ends[np.append(number[1:] != number[:-1], True)]


@dataclass(frozen=True)
class _Part:
    """A record batch in a file: where it lies, and how many rows it has."""

    offset: int
    bytes: int
    rows: int


class _BatchFile:
    """Record batches of one schema in a temporary file that no directory lists."""

    def __init__(self, directory: str | None):
        local = [name for name in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(name)]
        self._directory = directory or (local or [tempfile.gettempdir()])[0]
        try:
            self._file = tempfile.TemporaryFile(dir=self._directory, prefix="shardpiece-", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._problem(error) from None
        self.parts: list[_Part] = []
        self.size = 0

    def close(self) -> None:
        self._file.close()

    def _problem(self, error: OSError) -> OutputError:
        return OutputError(
            f"the temporary file for ordering and packing documents, in {self._directory}, cannot be written "
            f"({error.strerror}). Make room there, set TMPDIR or spark.local.dir, or give tasks more memory"
        )

    def write(self, rows: pa.RecordBatch) -> _Part:
        data = memoryview(rows.serialize())
        part = _Part(self.size, len(data), rows.num_rows)
        try:
            self._file.seek(self.size)
            while data:  # one call writes 2 GiB at most
                data = data[self._file.write(data) :]
        except OSError as error:
            raise self._problem(error) from None
        self.size += part.bytes
        self.parts.append(part)
        return part

    def read(self, part: _Part, schema: pa.Schema) -> pa.RecordBatch:
        buffer = bytearray(part.bytes)
        view = memoryview(buffer)
        self._file.seek(part.offset)
        while view:
            count = self._file.readinto(view)
            if not count:
                raise ShardpieceError(f"a temporary file in {self._directory} was cut short by something else")
            view = view[count:]
        return pa.ipc.read_record_batch(pa.py_buffer(buffer), schema)
