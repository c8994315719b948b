"""``dolma``, as OLMo's trainers read it: ``NAME.npy``, which in spite of its name is ids without an NPY header, uint16 or
uint32, little-endian; and ``NAME.csv.gz``, a line "start,end,id,src,loc" for each document, in tokens of the ``.npy``.

``src`` is the name of the shard and ``loc`` the row in it, from 1; a document without an id has an empty one,
and an empty one is read as none. Of packed rows
every document in a row has a line, and ``loc`` says which row it is in. Rows that hold nothing have no place there.
"""

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from shardpiece import storage
from shardpiece.errors import OutputError
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written, smallest_dtype
from shardpiece.shards.formats.boundaries import flat_rows, named, piece_ranges
from shardpiece.shards.formats.files import ShardFiles

_MOST_FIELD = (1 << 31) - 1


class DolmaFormat:
    name = "dolma"
    suffixes = (r"\.npy", r"\.csv\.gz")
    extras = ()
    carries = frozenset({"ids", "pieces"})

    def dtype(self, vocab_size: int) -> np.dtype:
        return smallest_dtype(vocab_size)

    def check(self, spec: ShardSpec) -> None:
        pass

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_DolmaWriter":
        return _DolmaWriter(directory, name, self.dtype(spec.vocab_size), spec.packed)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        return []

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        path = storage.join(directory, named(files, ".npy"))
        fs, inner = storage.filesystem(storage.join(directory, named(files, ".csv.gz")))
        csv.field_size_limit(_MOST_FIELD)  # of the process; an id may be longer than csv's 131,072
        with fs.open(inner, "rb") as raw, gzip.open(raw, "rt", encoding="utf-8", newline="") as lines:
            documents = [(int(start), int(end), name, int(loc)) for start, end, name, _, loc in csv.reader(lines)]
        dtype = self.dtype(spec.vocab_size)
        if not spec.packed:
            ends = np.array([end for _, end, _, _ in documents], np.int64)
            for row, (_, _, name, _) in zip(flat_rows(path, dtype, ends), documents, strict=True):
                yield row._replace(id=name or None)
            return
        pieces = np.array([(start, end) for start, end, _, _ in documents], np.int64).reshape(-1, 2)
        locs = np.array([loc for *_, loc in documents], np.int64)
        # A row begins where its first document does, and the last one ends with the file.
        begins = pieces[np.diff(locs, prepend=0) > 0, 0]
        fs, inner = storage.filesystem(path)
        total = fs.size(inner) // dtype.itemsize
        yield from flat_rows(
            path, dtype, np.append(begins[1:], [total] if len(begins) else []).astype(np.int64), pieces
        )


class _DolmaWriter:
    def __init__(self, directory: str, name: str, dtype: np.dtype, packed: bool):
        self._name, self._dtype, self._packed = name, dtype, packed
        self._files = ShardFiles(directory, "dolma")
        self._file = self._files.open(f"{name}.npy")
        # No time and no name in the header: the same rows are the same bytes.
        self._gzip = gzip.GzipFile("", "wb", 6, self._files.open(f"{name}.csv.gz"), mtime=0)
        self._rows = self._tokens = 0

    def write(self, batch: TokenBatch) -> None:
        if len(batch.tokens):
            self._file.write(np.ascontiguousarray(batch.tokens, self._dtype).data)
        locs = np.arange(self._rows + 1, self._rows + len(batch) + 1)
        if self._packed:
            starts, ends = piece_ranges(batch)
            locs, ids = np.repeat(locs, np.diff(batch.pieces.offsets)), batch.pieces.ids
        else:
            starts, ends, ids = batch.offsets[:-1], batch.offsets[1:], batch.ids
        names = [""] * len(starts) if ids is None else ids.fill_null("").to_pylist()
        lines = io.StringIO(newline="")
        csv.writer(lines).writerows(
            (start, end, name, self._name, loc)
            for start, end, name, loc in zip(
                (starts + self._tokens).tolist(), (ends + self._tokens).tolist(), names, locs.tolist(), strict=True
            )
        )
        self._gzip.write(lines.getvalue().encode())
        self._rows += len(batch)
        self._tokens += len(batch.tokens)

    def close(self) -> Written:
        self._gzip.close()
        return Written(self._files.commit())

    def discard(self) -> None:
        with suppress(OSError, OutputError, ValueError):  # the end of a stream that nobody will read
            self._gzip.close()
        self._files.discard()
