"""``litdata``, for its TokensLoader: files of rows (see parts.py), each row the ids of a document or packed sequence, and
``index.json`` beside them. Ids are uint16 (litdata's code 20), or int32 (16) for vocabularies above 65,536.

TokensLoader reads blocks of a length of its own and leaves the rest of each file unread: none, where packed rows are of this
length. ``NAME.pieces.npy`` has the documents in packed rows (see boundaries.py).
"""

import json
from collections.abc import Iterator

import numpy as np

from shardpiece import storage
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written
from shardpiece.shards.formats.boundaries import PIECES, Boundaries, flat_rows, load_pieces
from shardpiece.shards.formats.files import write_files
from shardpiece.shards.formats.parts import PART_BYTES, Parts, read_offsets

INDEX = "index.json"
CODES = {"uint16": 20, "int32": 16}  # litdata.constants._TORCH_DTYPES_MAPPING
# How torch writes down that a sample is one tensor, and not a structure of several.
_ONE_LEAF = '[1, {"type": null, "context": null, "children_spec": []}]'


class LitdataFormat:
    name = "litdata"
    suffixes = (r"\.bin", r"\.pieces\.npy")
    extras = (INDEX,)
    carries = frozenset({"pieces"})

    def dtype(self, vocab_size: int) -> np.dtype:
        return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<i4")

    def check(self, spec: ShardSpec) -> None:
        pass

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_LitdataWriter":
        return _LitdataWriter(directory, name, self.dtype(spec.vocab_size), spec.packed)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        chunks = []
        for shard in shards:
            files = [file for file in shard["files"] if file["name"].endswith(".bin")]
            for file, part in zip(files, shard["extra"].get("parts", []), strict=True):
                if part["tokens"]:  # a memory map of nothing is refused there
                    chunks.append({"chunk_bytes": file["bytes"], "chunk_size": part["rows"], "dim": part["tokens"],
                                   "filename": file["name"]})  # fmt: skip
        config = {
            "chunk_bytes": PART_BYTES,
            "chunk_size": None,
            "compression": None,
            "data_format": [f"no_header_tensor:{CODES[self.dtype(spec.vocab_size).name]}"],
            "data_spec": _ONE_LEAF,
            "encryption": None,
            "item_loader": "TokensLoader",
        }
        content = json.dumps({"chunks": chunks, "config": config}, sort_keys=True)
        return write_files(directory, self.name, {INDEX: content.encode()})

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        dtype = self.dtype(spec.vocab_size)
        pieces = load_pieces(directory, files)
        before = 0
        for part in files:
            if part["name"].endswith(PIECES):
                continue
            path = storage.join(directory, part["name"])
            fs, inner = storage.filesystem(path)
            with fs.open(inner, "rb") as file:
                offsets = read_offsets(path, file)
            ends = (offsets[1:] - offsets[0]) // dtype.itemsize
            total = int(ends[-1]) if len(ends) else 0
            own = pieces
            if pieces is not None:
                own = pieces[(pieces[:, 0] >= before) & (pieces[:, 0] < before + total)] - before
            yield from flat_rows(path, dtype, ends, own, int(offsets[0]))
            before += total


class _LitdataWriter:
    def __init__(self, directory: str, name: str, dtype: np.dtype, packed: bool):
        self._name, self._dtype = name, dtype
        self._parts = Parts(directory, name, "litdata", ".bin")
        self._boundaries = Boundaries(packed)

    def write(self, batch: TokenBatch) -> None:
        tokens = np.diff(batch.offsets)
        self._parts.add(np.ascontiguousarray(batch.tokens, self._dtype), tokens * self._dtype.itemsize, tokens)
        self._boundaries.add(batch)

    def close(self) -> Written:
        self._parts.seal()
        self._boundaries.write(self._parts.files, self._name, ends=False)
        return self._parts.commit()

    def discard(self) -> None:
        self._parts.discard()
