"""Arrow IPC: files, whose splits are record batches, and streams, which are read as a whole.

Where the batches of a file lie, and how many rows each has, is read from the flatbuffers of its footer and messages
(Arrow's Message.fbs and File.fbs), of which a few fields are enough: pyarrow would load the batches.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from shardpiece import storage
from shardpiece.corpus.base import (
    BATCH_BYTES,
    BATCH_ROWS,
    SPLIT_BYTES,
    Batch,
    BatchRange,
    Found,
    InputFile,
    Selection,
    small_batches,
)
from shardpiece.corpus.probe import probe
from shardpiece.corpus.sources import SourceFile
from shardpiece.errors import InputError

_MAGIC = b"ARROW1"


def plan(file: SourceFile, selection: Selection, needed: list[str]) -> Found:
    """Reads schema, footer and the heads of the messages of a file; the schema of a stream."""
    if file.size == 0:
        raise InputError("an empty file")
    if not _is_file(file.path):
        with _source(file.path) as source, ipc.open_stream(source) as reader:
            schema = reader.schema
        splits = [BatchRange(file.path, -1, -1, 0, -1, file.size)]
        return Found(InputFile(file.path, file.size, -1, probe(file)), splits, schema)
    with _source(file.path) as source:
        reader = ipc.open_file(source)
        schema, batches = reader.schema, reader.num_record_batches
    blocks = _blocks(file.path, file.size)
    rows = _rows(file.path, blocks)
    if len(blocks) != batches:
        raise InputError("the footer's blocks cannot be read")
    splits, first_batch, first_row, size = [], 0, 0, 0
    for b, (_, _, body) in enumerate(blocks):
        size += body
        if size >= SPLIT_BYTES or b + 1 == len(blocks):
            n = sum(rows[first_batch : b + 1])
            splits.append(BatchRange(file.path, first_batch, b + 1 - first_batch, first_row, n, size))
            first_batch, first_row, size = b + 1, first_row + n, 0
    return Found(InputFile(file.path, file.size, sum(rows), probe(file)), splits, schema)


def read(splits: Sequence[BatchRange], selection: Selection, columns: list[str]) -> Iterator[Batch]:
    for split in splits:
        with _source(split.path) as source:
            row = split.first_row
            for data in _batches(source, split, columns):
                yield from _parts(split, row, data, selection.columns.text)
                row += data.num_rows


def _batches(source, split: BatchRange, columns: list[str]) -> Iterator[pa.RecordBatch]:
    whole = ipc.open_stream(source) if split.first_batch < 0 else ipc.open_file(source)
    # What is not needed is not decompressed, and in files not read.
    needed = sorted(whole.schema.get_field_index(name) for name in columns)
    options = ipc.IpcReadOptions(included_fields=needed, use_threads=False)
    source.seek(0)
    if split.first_batch < 0:
        with ipc.open_stream(source, options=options) as reader:
            for data in reader:
                yield data.select(columns)
    else:
        reader = ipc.open_file(source, options=options)
        for b in range(split.first_batch, split.first_batch + split.batches):
            yield reader.get_batch(b).select(columns)


def _parts(split: BatchRange, first_row: int, data: pa.RecordBatch, text: str) -> Iterator[Batch]:
    """Record batches may be of any size: a pandas frame is written as one."""
    row_bytes = max(1, data[text].nbytes // max(1, data.num_rows))
    rows = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
    for first in range(0, data.num_rows, rows):
        part = data.slice(first, rows)
        begin = first_row + first
        yield from small_batches(Batch(split, np.arange(begin, begin + part.num_rows), part), text)


@contextmanager
def _source(path: str) -> Iterator[pa.NativeFile]:
    fs, inner = storage.filesystem(path)
    if storage.is_local(path):
        with pa.memory_map(inner) as source:
            yield source
    else:
        with fs.open(inner, "rb", block_size=4 << 20) as file, pa.PythonFile(file, "r") as source:
            yield source


def _is_file(path: str) -> bool:
    fs, inner = storage.filesystem(path)
    return fs.cat_file(inner, start=0, end=len(_MAGIC)) == _MAGIC


def _blocks(path: str, size: int) -> list[tuple[int, int, int]]:
    """(offset, bytes of the message's head, bytes of its body) of every record batch."""
    fs, inner = storage.filesystem(path)
    length, magic = struct.unpack("<i6s", fs.cat_file(inner, start=size - 10, end=size))
    if magic != _MAGIC or not 0 < length <= size - 10:
        raise InputError("no Arrow footer: cut off, or never finished")
    footer = _Table(fs.cat_file(inner, start=size - 10 - length, end=size - 10))
    return footer.blocks(3)


def _rows(path: str, blocks: list[tuple[int, int, int]]) -> list[int]:
    """The rows of each record batch, from the heads of their messages."""
    fs, inner = storage.filesystem(path)
    starts, ends = [b[0] for b in blocks], [b[0] + b[1] for b in blocks]
    rows = []
    for head in fs.cat_ranges([inner] * len(blocks), starts, ends):
        # A continuation mark and the length of the flatbuffer come first; files before Arrow 0.15 have no mark.
        message = _Table(head[8:] if head[:4] == b"\xff\xff\xff\xff" else head[4:])
        rows.append(message.table(2).int64(0))
    return rows


class _Table:
    """A flatbuffers table: fields by their number, as Arrow's schemas count them."""

    def __init__(self, data: bytes, at: int | None = None):
        self._data = data
        self._at = self._int("<I", 0) if at is None else at
        self._fields = self._at - self._int("<i", self._at)

    def _int(self, kind: str, at: int) -> int:
        try:
            return struct.unpack_from(kind, self._data, at)[0]
        except struct.error:
            raise InputError("damaged: a message's head is cut off") from None

    def _place(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry >= self._int("<H", self._fields):
            return None
        offset = self._int("<H", self._fields + entry)
        return self._at + offset if offset else None

    def int64(self, number: int) -> int:
        place = self._place(number)
        return 0 if place is None else self._int("<q", place)

    def table(self, number: int) -> "_Table":
        place = self._place(number)
        if place is None:
            raise InputError("damaged: a message without a head")
        return _Table(self._data, place + self._int("<I", place))

    def blocks(self, number: int) -> list[tuple[int, int, int]]:
        """A vector of Block structs: int64 offset, int32 head, padding, int64 body."""
        place = self._place(number)
        if place is None:
            return []
        place += self._int("<I", place)
        n = self._int("<I", place)
        if place + 4 + 24 * n > len(self._data):
            raise InputError("damaged: the footer is cut off")
        return [struct.unpack_from("<qi4xq", self._data, place + 4 + 24 * i) for i in range(n)]
