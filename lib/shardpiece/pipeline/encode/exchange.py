"""Documents on their way through Spark's shuffle: packed by partition into rows of some megabytes, and taken out again.

Spark moves binary values and orders them by two numbers; what is in them, Arrow record batches of any columns, is none of its
business. A row of Spark's per document would have to have Spark's types, and a document of 200 MB would be one value in the
heap of several JVMs: here it is cut into parts.
"""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa
import xxhash

from shardpiece.errors import ShardpieceError

# ``chunk`` is unique and ascends in the order in which a partition's documents were added; ``parts``: of how many it is made;
# ``note``: what a task says about a partition, once, in its first part. Where documents come in no order, each is a chunk,
# named by its key and the hash of all that is in it (``content``, else 0).
ROW_SCHEMA = "partition int, chunk long, content long, part int, parts int, note string, data binary"
ORDER = ("chunk", "content", "part")
_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()), ("chunk", pa.int64()), ("content", pa.int64()), ("part", pa.int32()), ("parts", pa.int32()),
        ("note", pa.string()), ("data", pa.binary()),
    ]
)  # fmt: skip
_TASK_SHIFT = 32
_CHUNK_BYTES = 4 << 20
_PART_BYTES = 8 << 20
_BATCH_BYTES = 8 << 20


class Scatter:
    """The sending side of one task: ``task``, its number, decides where its documents stand among those of other tasks;
    None: their keys and contents decide it. ``memory``: bytes of documents that wait to be packed; the more, the fewer and
    larger the pieces."""

    def __init__(self, task: int | None, memory: int):
        self._ordered = task is not None
        task = task or 0
        self._next_chunk = task << _TASK_SHIFT
        # When they are packed, they are there three times: as added, as one batch, and in the order of the partitions.
        self._most = max(1, memory // 3)
        self._rows: list[pa.RecordBatch] = []
        self._partitions: list[np.ndarray] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch, partitions: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Add documents: ``partitions`` (integers [rows]) says where each goes; without a number of the task they have a
        column ``key`` (uint64). Yields what is ready for Spark."""
        if rows.num_rows:
            self._rows.append(rows)
            self._partitions.append(partitions)
            self._bytes += rows.nbytes
        if self._bytes >= self._most:
            yield from _batched(self._pack())

    def finish(self, notes: dict[int, str]) -> Iterator[pa.RecordBatch]:
        """The rest, and a note for each partition of ``notes``."""
        yield from _batched(self._pack())
        yield from _batched(self._note(partition, note) for partition, note in sorted(notes.items()))

    def _pack(self) -> Iterator[tuple]:
        if not self._rows:
            return
        rows = self._rows[0] if len(self._rows) == 1 else pa.concat_batches(self._rows)
        partitions = np.concatenate(self._partitions)
        self._rows, self._partitions, self._bytes = [], [], 0
        if (partitions[1:] != partitions[:-1]).any():
            order = np.argsort(partitions, kind="stable")
            rows, partitions = rows.take(pa.array(order)), partitions[order]
        if not self._ordered:
            yield from self._one_by_one(rows, partitions)
            return
        ends = [*(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
        start = 0
        for end in ends:
            # Pieces of about as many documents as make up a chunk.
            few = max(1, (end - start) * _CHUNK_BYTES // max(1, rows.slice(start, end - start).nbytes))
            for first in range(start, end, few):
                data = rows.slice(first, min(few, end - first)).serialize()
                yield from self._parts(int(partitions[start]), None, memoryview(data))
            start = end

    def _one_by_one(self, rows: pa.RecordBatch, partitions: np.ndarray) -> Iterator[tuple]:
        # As signed numbers in the order of the unsigned.
        keys = (np.asarray(rows["key"]) ^ np.uint64(1 << 63)).view(np.int64).tolist()
        for row, (partition, key) in enumerate(zip(partitions.tolist(), keys, strict=True)):
            data = memoryview(rows.slice(row, 1).serialize())
            content = xxhash.xxh3_64_intdigest(data) - (1 << 63)
            for part, (parts, piece) in enumerate(_pieces(data)):
                yield partition, key, content, part, parts, None, piece

    def _note(self, partition: int, note: str) -> tuple:
        return next(self._parts(partition, note, memoryview(b"")))

    def _parts(self, partition: int, note: str | None, data: memoryview) -> Iterator[tuple]:
        for part, (parts, piece) in enumerate(_pieces(data)):
            yield partition, self._next_chunk, 0, part, parts, note if part == 0 else None, piece
        self._next_chunk += 1


def _pieces(data: memoryview) -> list[tuple[int, memoryview]]:
    """(how many there are, each)."""
    parts = max(1, -(-len(data) // _PART_BYTES))
    return [(parts, data[part * _PART_BYTES : (part + 1) * _PART_BYTES]) for part in range(parts)]


def _batched(rows: Iterator[tuple]) -> Iterator[pa.RecordBatch]:
    """Spark's rows in batches of some megabytes."""
    pending: list[tuple] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row[-1]) + 64
        if size >= _BATCH_BYTES:
            yield _record_batch(pending)
            pending, size = [], 0
    if pending:
        yield _record_batch(pending)


def _record_batch(rows: list[tuple]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def gather(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[tuple[int, str | None, pa.RecordBatch]]:
    """The receiving side: (partition, note or None, documents) in the order in which they were added, tasks by their number.
    ``batches``: rows of Spark's, ordered by partition and ORDER; ``schema``: of the documents.

    Raises ShardpieceError when a part is missing.
    """
    for (partition, chunk, _, parts), rows in groupby(_rows(batches), lambda row: (*row[:3], row[4])):
        pieces = [*rows]
        # Documents without an order may be there several times, alike in every bit.
        times = len(pieces) // parts
        if [row[3] for row in pieces] != [part for part in range(parts) for _ in range(times)]:
            raise ShardpieceError(f"the shuffle lost a part of a document (chunk {chunk}, {len(pieces)} of {parts})")
        # What Spark hands out may be overwritten by its next batch, a copy is not.
        data = pa.py_buffer(b"".join(row[6] for row in pieces[::times]))
        documents = pa.ipc.read_record_batch(data, schema) if len(data) else pa.RecordBatch.from_pylist([], schema)
        for row in pieces[:times]:
            yield partition, row[5], documents


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple]:
    for batch in batches:
        *numbers, data = (batch[field.name] for field in _SCHEMA)
        for i, row in enumerate(zip(*(column.to_pylist() for column in numbers), strict=True)):
            yield *row, memoryview(data[i].as_buffer())
