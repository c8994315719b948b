"""Rows as Arrow record batches with a column for each thing, cut where the rows say and not where batches ended."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from shardpiece.errors import ConfigError, OutputError
from shardpiece.shards.formats.base import Row, ShardSpec, TokenBatch
from shardpiece.shards.formats.boundaries import piece_ranges

_INT32_MAX = 2**31 - 1
# What a row without tokens weighs, in tokens: its id and its place in the index.
_ROW_WEIGHT = 16
# Tokens of a row that gets a record batch of its own: with others, a list's 32-bit offsets might not reach its end.
_ALONE = 1 << 30


def table_schema(spec: ShardSpec, tokens: str, counts: str | None = None) -> pa.Schema:
    """``tokens``: name of the column with the ids (list of int32); ``counts``: of one with how many they are. Documents have
    ``id`` and the carried columns; packed rows ``doc_ids`` (list of string) and ``doc_lengths`` (list of int32)."""
    fields = [pa.field(tokens, pa.list_(pa.int32()))] + ([pa.field(counts, pa.int64())] if counts else [])
    if spec.packed:
        return pa.schema([*fields, ("doc_ids", pa.list_(pa.string())), ("doc_lengths", pa.list_(pa.int32()))])
    return pa.schema([("id", pa.string()), *fields, *(spec.metadata or ())])


def check_metadata(spec: ShardSpec, format_name: str, own: Iterable[str]) -> None:
    """Raises ConfigError for carried columns that have a name of the format's own, or that packed rows have no place for."""
    carried = list(spec.metadata.names) if spec.metadata is not None else []
    if carried and spec.packed:
        raise ConfigError(
            f"metadata_columns: {format_name} has packed rows, of several documents each, which have no place for "
            f"{', '.join(carried)}"
        )
    if taken := sorted(set(carried) & set(own)):
        raise ConfigError(f"metadata_columns: {format_name} has a column {taken[0]!r} of its own: rename yours")


class TableRows:
    """Collects rows, and gives record batches of ``weight`` tokens (a row counts 16 more) to ``write``. ``tokens``,
    ``counts``: as ``table_schema`` has them."""

    def __init__(
        self,
        spec: ShardSpec,
        tokens: str,
        counts: str | None,
        weight: int,
        write: Callable[[pa.RecordBatch], None],
    ):
        self.schema = table_schema(spec, tokens, counts)
        self._packed, self._tokens, self._counts = spec.packed, tokens, counts
        self._weight, self._write = weight, write
        self._pending: list[pa.RecordBatch] = []
        self._filled = 0

    def add(self, batch: TokenBatch) -> None:
        """Raises OutputError for a row of more tokens than a list can have."""
        lengths = np.diff(batch.offsets)
        weights = np.concatenate([[0], np.cumsum(lengths + _ROW_WEIGHT)])
        alone = np.append(np.flatnonzero(lengths > _ALONE), len(lengths))
        row = 0
        while row < len(lengths):
            own = int(alone[np.searchsorted(alone, row)])
            if own == row:
                self.flush()
                end = row + 1
            else:
                end = int(np.searchsorted(weights, weights[row] + self._weight - self._filled))
                end = min(end, own)
            self._pending.append(self._rows(batch, row, end))
            self._filled += int(weights[end] - weights[row])
            if self._filled >= self._weight:
                self.flush()
            row = end

    def flush(self) -> None:
        """Write what is pending."""
        if self._pending:
            rows = self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)
            self._pending, self._filled = [], 0
            self._write(rows)

    def _rows(self, batch: TokenBatch, row: int, end: int) -> pa.RecordBatch:
        offsets = batch.offsets[row : end + 1]
        if end - row == 1 and offsets[1] - offsets[0] > _INT32_MAX:
            raise OutputError(
                f"a list has 2,147,483,647 tokens at most, and a document has {offsets[1] - offsets[0]:,}: pack documents"
            )
        tokens = np.asarray(batch.tokens[offsets[0] : offsets[-1]]).astype(np.int32, copy=False)
        columns = {self._tokens: _lists(offsets, pa.array(tokens))}
        if self._counts:
            columns[self._counts] = pa.array(np.diff(offsets), pa.int64())
        if self._packed:
            columns |= _piece_columns(batch, row, end)
        else:
            columns["id"] = pa.nulls(end - row, pa.string()) if batch.ids is None else batch.ids[row:end]
        for field in self.schema:
            if field.name not in columns:
                columns[field.name] = batch.metadata[field.name][row:end]
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _piece_columns(batch: TokenBatch, row: int, end: int) -> dict[str, pa.Array]:
    offsets = batch.pieces.offsets[row : end + 1]
    starts, ends = piece_ranges(batch)
    lengths = (ends - starts)[offsets[0] : offsets[-1]].astype(np.int32)
    ids = batch.pieces.ids
    ids = pa.nulls(len(lengths), pa.string()) if ids is None else ids[int(offsets[0]) : int(offsets[-1])]
    return {"doc_ids": _lists(offsets, ids), "doc_lengths": _lists(offsets, pa.array(lengths))}


def _lists(offsets: np.ndarray, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), values)


def table_rows(batches: Iterable[pa.RecordBatch], tokens: str) -> Iterator[Row]:
    """What was written, row by row."""
    for batch in batches:
        names = set(batch.schema.names)
        ids = batch["id"].to_pylist() if "id" in names else [None] * len(batch)
        values, offsets = batch[tokens].values.to_numpy(), batch[tokens].offsets.to_numpy()
        lengths = batch["doc_lengths"] if "doc_lengths" in names else None
        for i, name in enumerate(ids):
            ends = None if lengths is None else np.cumsum(lengths[i].values.to_numpy(), dtype=np.int64)
            yield Row(name, values[offsets[i] : offsets[i + 1]], ends)
