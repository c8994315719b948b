"""``mds``, version 2, as MosaicML Streaming reads it: files of rows (see parts.py) with a JSON of the columns before them,
and ``index.json`` beside them. A row is u32 sizes of the columns of variable size, in the order of their names, then the
values in this order.

Documents: ``id`` (json: a string or null) and ``tokens`` (``ndarray:uint16`` or ``ndarray:uint32``: with a length of its own,
which may be 0); packed rows: ``tokens`` (``ndarray:uint16:LENGTH``), ``doc_ids`` (json, a list) and ``doc_lengths``
(``ndarray:int32``). Carried columns are ``json``. Checksums are in ``index.json`` as ``xxh3_64``, for ``validate_hash``.
"""

import json
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from shardpiece import storage
from shardpiece.errors import ConfigError
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written, smallest_dtype
from shardpiece.shards.formats.boundaries import piece_ranges
from shardpiece.shards.formats.columns import check_metadata
from shardpiece.shards.formats.files import write_files
from shardpiece.shards.formats.parts import PART_BYTES, Parts, read_offsets

INDEX = "index.json"
_HASH = "xxh3_64"


class MdsFormat:
    name = "mds"
    suffixes = (r"\.mds",)
    extras = (INDEX,)
    carries = frozenset({"ids", "metadata", "pieces"})

    def dtype(self, vocab_size: int) -> np.dtype:
        return smallest_dtype(vocab_size)

    def check(self, spec: ShardSpec) -> None:
        check_metadata(spec, self.name, ("id", "tokens"))
        for field in spec.metadata or ():
            if not _is_json(field.type):
                raise ConfigError(
                    f"metadata_columns: mds has no place for {field.name!r}, which is {field.type}: "
                    f"cast it to a string or a number, or choose parquet or arrow"
                )

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_MdsWriter":
        return _MdsWriter(directory, name, self.dtype(spec.vocab_size), spec)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        listed = []
        for shard in shards:
            for file, part in zip(shard["files"], shard["extra"].get("parts", []), strict=True):
                hashes = {_HASH: file["checksum"].removeprefix("xxh3:")}
                raw_data = {"basename": file["name"], "bytes": file["bytes"], "hashes": hashes}
                listed.append(
                    {
                        **_config(shard["extra"]["columns"]),
                        "raw_data": raw_data,
                        "samples": part["rows"],
                        "zip_data": None,
                    }
                )
        content = json.dumps({"version": 2, "shards": listed}, sort_keys=True)
        return write_files(directory, self.name, {INDEX: content.encode()})

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        for part in files:
            yield from _read_part(storage.join(directory, part["name"]))


def _columns(spec: ShardSpec) -> dict[str, str]:
    """Name → encoding, sorted by name."""
    tokens = f"ndarray:{smallest_dtype(spec.vocab_size).name}"
    if spec.packed:
        length = f":{spec.sequence_length}" if spec.sequence_length else ""
        return {"doc_ids": "json", "doc_lengths": "ndarray:int32", "tokens": tokens + length}
    columns = {"id": "json", "tokens": tokens} | {field.name: "json" for field in spec.metadata or ()}
    return dict(sorted(columns.items()))


def _config(columns: dict[str, str]) -> dict:
    return {
        "column_encodings": list(columns.values()),
        "column_names": list(columns),
        "column_sizes": [_static_size(encoding) for encoding in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [_HASH],
        "size_limit": PART_BYTES,
        "version": 2,
    }


def _static_size(encoding: str) -> int | None:
    """Bytes of every value, None where they differ."""
    _, *array = encoding.split(":")
    return np.dtype(array[0]).itemsize * int(array[1]) if len(array) == 2 else None


def _is_json(kind: pa.DataType) -> bool:
    """Whether Python's JSON can say values of this type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json(field.type) for field in kind)
    simple = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string,
              pa.types.is_large_string, pa.types.is_null)  # fmt: skip
    return any(holds(kind) for holds in simple)


class _MdsWriter:
    def __init__(self, directory: str, name: str, dtype: np.dtype, spec: ShardSpec):
        self._encodings = _columns(spec)
        config = _config(self._encodings)
        self._columns, self._sizes, self._dtype = config["column_names"], config["column_sizes"], dtype
        self._packed = spec.packed
        self._parts = Parts(directory, name, "mds", ".mds", json.dumps(config, sort_keys=True).encode())

    def write(self, batch: TokenBatch) -> None:
        if not len(batch):
            return
        values = self._values(batch)
        columns = [values[name] for name in self._columns]
        variable = [values[name] for name, size in zip(self._columns, self._sizes, strict=True) if size is None]
        lengths = np.array([list(map(len, column)) for column in variable], "<u4").T
        heads = [row.tobytes() for row in np.ascontiguousarray(lengths)]
        rows = [b"".join(row) for row in zip(heads, *columns, strict=True)]
        self._parts.add(b"".join(rows), np.array(list(map(len, rows)), np.int64), np.diff(batch.offsets))

    def _values(self, batch: TokenBatch) -> dict[str, list[bytes]]:
        tokens = np.ascontiguousarray(batch.tokens, self._dtype)
        static = self._sizes[self._columns.index("tokens")] is not None
        values = {"tokens": _arrays(tokens, batch.offsets, shape=not static)}
        if not self._packed:
            values["id"] = [
                _json(name) for name in ([None] * len(batch) if batch.ids is None else batch.ids.to_pylist())
            ]
            for name in self._columns:
                if name not in values:
                    values[name] = [_json(value) for value in batch.metadata[name].to_pylist()]
            return values
        starts, ends = piece_ranges(batch)
        offsets = batch.pieces.offsets
        ids = [None] * len(ends) if batch.pieces.ids is None else batch.pieces.ids.to_pylist()
        values["doc_ids"] = [_json(ids[a:b]) for a, b in pairwise(offsets.tolist())]
        values["doc_lengths"] = _arrays((ends - starts).astype("<i4"), offsets, shape=True)
        return values

    def close(self) -> Written:
        written = self._parts.commit()
        return Written(written.files, {**written.extra, "columns": self._encodings})

    def discard(self) -> None:
        self._parts.discard()


def _json(value) -> bytes:
    return json.dumps(value).encode()


def _arrays(values: np.ndarray, offsets: np.ndarray, shape: bool) -> list[bytes]:
    """The encoded slices of ``values``, of one dimension each; with ``shape`` their lengths are in front."""
    raw = values.tobytes()
    bounds = (offsets * values.itemsize).tolist()
    slices = [raw[a:b] for a, b in pairwise(bounds)]
    if not shape:
        return slices
    return [_shape(n) + data for n, data in zip(np.diff(offsets).tolist(), slices, strict=True)]


def _shape(length: int) -> bytes:
    """A byte that says one dimension and which of 1, 2, 4 and 8 bytes its length has, and the length."""
    code = 0 if length < 1 << 8 else 1 if length < 1 << 16 else 2 if length < 1 << 32 else 3
    return bytes([1 << 2 | code]) + length.to_bytes(1 << code, "little")


def _read_part(path: str) -> Iterator[Row]:
    fs, inner = storage.filesystem(path)
    with fs.open(inner, "rb") as file:
        offsets = read_offsets(path, file)
        config = json.loads(file.read(int(offsets[0]) - 4 * (len(offsets) + 1)))
        columns = list(zip(*(config[f"column_{what}"] for what in ("names", "encodings", "sizes")), strict=True))
        for size in np.diff(offsets).tolist():
            raw = file.read(size)
            if len(raw) != size:
                raise ValueError(f"{path} ends in the middle of a row")
            values = _decode(raw, columns)
            ends = np.cumsum(values["doc_lengths"], dtype=np.int64) if "doc_lengths" in values else None
            yield Row(values.get("id"), values["tokens"], ends)


def _decode(raw: bytes, columns: list[tuple[str, str, int | None]]) -> dict:
    """The columns that readers are interested in."""
    variable = sum(size is None for *_, size in columns)
    sizes = iter(np.frombuffer(raw, "<u4", variable).tolist())
    values = {}
    at = 4 * variable
    for name, encoding, static in columns:
        size = static or next(sizes)
        data = raw[at : at + size]
        at += size
        if name == "id":
            values[name] = json.loads(data)
        elif encoding.startswith("ndarray:"):
            _, dtype, *shape = encoding.split(":")
            values[name] = np.frombuffer(data, dtype, offset=0 if shape else 1 + (1 << data[0] % 4))
    return values
