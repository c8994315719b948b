"""Rows of tokens as Arrow record batches, in which Arrow moves them about: tokens are one binary value per row, which it
copies as such, and what belongs to a row goes along."""

import numpy as np
import pyarrow as pa

from shardpiece.shards.formats.base import Pieces, TokenBatch


def to_arrow(batch: TokenBatch) -> pa.RecordBatch:
    """A view of the batch, nothing is copied; columns ``tokens`` and, where the batch has them, ``id``, ``metadata``,
    ``piece_ends`` and ``piece_ids``."""
    offsets = np.ascontiguousarray(batch.offsets, np.int64) * batch.tokens.itemsize
    columns = {
        "tokens": pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(batch), [None, pa.py_buffer(offsets), pa.py_buffer(batch.tokens)]
        )
    }
    if batch.ids is not None:
        columns["id"] = batch.ids
    if batch.metadata is not None:
        columns["metadata"] = batch.metadata.to_struct_array()
    if batch.pieces is not None:
        pieces = pa.array(batch.pieces.offsets, pa.int64())
        columns["piece_ends"] = pa.LargeListArray.from_arrays(pieces, pa.array(batch.pieces.ends, pa.int64()))
        if batch.pieces.ids is not None:
            columns["piece_ids"] = pa.LargeListArray.from_arrays(pieces, batch.pieces.ids)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def from_arrow(rows: pa.RecordBatch, dtype: np.dtype) -> TokenBatch:
    """What ``to_arrow`` made, its tokens of ``dtype``; a view again, which may not be written to."""
    names = set(rows.schema.names)
    offsets, values = _ranges(rows["tokens"])
    tokens = np.frombuffer(values, np.uint8) if values is not None and values.size else np.empty(0, np.uint8)
    tokens = tokens[offsets[0] : offsets[-1]].view(dtype)
    pieces = None
    if "piece_ends" in names:
        ends = rows["piece_ends"]
        ids = rows["piece_ids"].flatten() if "piece_ids" in names else None
        starts = _ranges(ends)[0]
        pieces = Pieces(starts - starts[0], ends.flatten().to_numpy(), ids)
    return TokenBatch(
        tokens,
        (offsets - offsets[0]) // dtype.itemsize,
        rows["id"] if "id" in names else None,
        pa.RecordBatch.from_struct_array(rows["metadata"]) if "metadata" in names else None,
        pieces,
    )


def _ranges(array: pa.Array) -> tuple[np.ndarray, pa.Buffer | None]:
    """(offsets int64 [n + 1], values) of an array with 64-bit offsets, which may be a slice."""
    buffers = array.buffers()
    if buffers[1] is None or not buffers[1].size:
        return np.zeros(1, np.int64), None
    offsets = np.frombuffer(buffers[1], np.int64, len(array) + 1, array.offset * 8)
    return offsets, buffers[2] if len(buffers) > 2 else None


def take_rows(batch: TokenBatch, rows: np.ndarray) -> TokenBatch:
    """The rows of these numbers, in this order; a copy."""
    return from_arrow(to_arrow(batch).take(pa.array(rows, pa.int64())), batch.tokens.dtype)


def join_rows(batches: list[TokenBatch]) -> TokenBatch:
    """The rows of all batches, one after the other; they have the same columns and type of tokens."""
    if len(batches) == 1:
        return batches[0]
    return from_arrow(pa.concat_batches([to_arrow(batch) for batch in batches]), batches[0].tokens.dtype)


def slice_rows(batch: TokenBatch, start: int, end: int) -> TokenBatch:
    """Rows ``start`` to ``end`` - 1; a view."""
    return from_arrow(to_arrow(batch).slice(start, end - start), batch.tokens.dtype)


def without_empty_rows(batch: TokenBatch) -> TokenBatch:
    """The rows that have tokens; of its columns only the ids."""
    full = np.diff(batch.offsets) > 0
    if full.all():
        return TokenBatch(batch.tokens, batch.offsets, batch.ids)
    offsets = np.concatenate([batch.offsets[:1], batch.offsets[1:][full]])
    return TokenBatch(batch.tokens, offsets, None if batch.ids is None else batch.ids.filter(pa.array(full)))
