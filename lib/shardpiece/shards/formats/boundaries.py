"""Where rows end, and where the documents in packed rows lie: kept while a shard is written, and read back.

``NAME.ends.npy``: int64 [rows], the number of tokens up to and including each row. ``NAME.pieces.npy``, of packed rows, for
formats without a place of their own for it: int64 [documents, 2], where each document begins and ends, in tokens from the
beginning of the shard. What no document covers is padding.
"""

from collections.abc import Iterator

import numpy as np

from shardpiece import storage
from shardpiece.shards.formats.base import Row, TokenBatch
from shardpiece.shards.formats.files import ShardFiles

ENDS, PIECES = ".ends.npy", ".pieces.npy"


class Boundaries:
    """Those of one shard: 8 bytes a row and 16 a document in packed ones."""

    def __init__(self, packed: bool):
        self.packed = packed
        self.tokens = 0
        self._ends: list[np.ndarray] = []
        self._pieces: list[np.ndarray] = []

    def add(self, batch: TokenBatch) -> None:
        if self.packed and batch.pieces is not None:
            starts, ends = piece_ranges(batch)
            self._pieces.append(np.stack([starts, ends], 1) + self.tokens)
        self._ends.append(batch.offsets[1:] + self.tokens)
        self.tokens += len(batch.tokens)

    def ends(self) -> np.ndarray:
        """int64 [rows]"""
        return np.concatenate([np.empty(0, np.int64), *self._ends])

    def pieces(self) -> np.ndarray:
        """int64 [documents, 2]"""
        return np.concatenate([np.empty((0, 2), np.int64), *self._pieces])

    def write(self, files: ShardFiles, name: str, ends: bool) -> None:
        """Write the files of the shard of this name; without ``ends`` only that of the pieces."""
        if ends:
            np.lib.format.write_array(files.open(name + ENDS), self.ends())
        if self.packed:
            np.lib.format.write_array(files.open(name + PIECES), self.pieces())


def piece_ranges(batch: TokenBatch) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends) of the pieces of a batch, int64, in its tokens."""
    pieces = batch.pieces
    counts = np.diff(pieces.offsets)
    row_starts = np.repeat(batch.offsets[:-1], counts)
    ends = pieces.ends + row_starts
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    first = pieces.offsets[:-1][counts > 0]
    starts[first] = row_starts[first]
    return starts, ends


def named(files: list[dict], suffix: str) -> str | None:
    """The name of the file among a shard's files that ends so."""
    return next((file["name"] for file in files if file["name"].endswith(suffix)), None)


def load_array(directory: str, name: str) -> np.ndarray:
    """Raises ValueError for what is no NPY file."""
    fs, inner = storage.filesystem(storage.join(directory, name))
    with fs.open(inner, "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def load_pieces(directory: str, files: list[dict]) -> np.ndarray | None:
    """int64 [documents, 2] of a shard of packed rows, None of one of documents."""
    name = named(files, PIECES)
    return None if name is None else load_array(directory, name)


def flat_rows(
    path: str, dtype: np.dtype, ends: np.ndarray, pieces: np.ndarray | None = None, skip: int = 0
) -> Iterator[Row]:
    """Rows whose tokens follow each other in a file behind ``skip`` bytes. Raises ValueError where it is too short."""
    first = None
    if pieces is not None:
        rows = np.searchsorted(ends, pieces[:, 0], side="right")
        first = np.searchsorted(rows, np.arange(len(ends) + 1))
    fs, inner = storage.filesystem(path)
    with fs.open(inner, "rb") as file:
        file.seek(skip)
        start = 0
        for row, end in enumerate(ends.tolist()):
            size = (end - start) * dtype.itemsize
            raw = file.read(size) if size else b""
            if len(raw) != size:
                raise ValueError(f"{path} ends in the middle of a row")
            own = None if pieces is None else pieces[first[row] : first[row + 1], 1] - start
            yield Row(None, np.frombuffer(raw, dtype), own)
            start = end
