"""``datatrove``: ``NAME.ds``, ids without a header, uint16 or uint32; ``NAME.ds.index``, u64 for each document, where it ends
in tokens; ``NAME.ds.metadata``, text: TOKENIZER|BYTES PER TOKEN, the number of tokens, and the same for people. All
little-endian.

Of packed rows the index has the ends of the documents in them, and of the padding, so that positions within documents come
out right; which of these is which row's says ``NAME.pieces.npy`` together with ``NAME.ends.npy`` (see boundaries.py).
"""

from collections.abc import Iterator

import numpy as np

from shardpiece import storage
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written
from shardpiece.shards.formats.boundaries import ENDS, Boundaries, flat_rows, load_array, load_pieces, named
from shardpiece.shards.formats.files import ShardFiles


class DatatroveFormat:
    name = "datatrove"
    suffixes = (r"\.ds", r"\.ds\.index", r"\.ds\.metadata", r"\.ends\.npy", r"\.pieces\.npy")
    extras = ()
    carries = frozenset({"pieces"})

    def dtype(self, vocab_size: int) -> np.dtype:
        return np.dtype("<u2") if vocab_size <= 65535 else np.dtype("<u4")

    def check(self, spec: ShardSpec) -> None:
        pass

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_DatatroveWriter":
        return _DatatroveWriter(directory, name, self.dtype(spec.vocab_size), spec)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        return []

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        ends = named(files, ENDS)
        if ends is not None:
            ends = load_array(directory, ends)
        else:
            ends = np.frombuffer(storage.read_bytes(storage.join(directory, named(files, ".index"))), "<u8")
        path = storage.join(directory, named(files, ".ds"))
        yield from flat_rows(path, self.dtype(spec.vocab_size), ends.astype(np.int64), load_pieces(directory, files))


class _DatatroveWriter:
    def __init__(self, directory: str, name: str, dtype: np.dtype, spec: ShardSpec):
        self._name, self._dtype, self._spec = name, dtype, spec
        self._files = ShardFiles(directory, "datatrove")
        self._file = self._files.open(f"{name}.ds")
        self._boundaries = Boundaries(spec.packed)

    def write(self, batch: TokenBatch) -> None:
        if len(batch.tokens):
            self._file.write(np.ascontiguousarray(batch.tokens, self._dtype).data)
        self._boundaries.add(batch)

    def close(self) -> Written:
        boundaries = self._boundaries
        ends = boundaries.ends()
        if boundaries.packed:
            ends = np.union1d(ends, boundaries.pieces()[:, 1])
        self._files.open(f"{self._name}.ds.index").write(ends.astype("<u8").data)
        metadata = (
            f"{self._spec.tokenizer}|{self._dtype.itemsize}\n{boundaries.tokens}\n{for_people(boundaries.tokens)}"
        )
        self._files.open(f"{self._name}.ds.metadata").write(metadata.encode())
        if boundaries.packed:
            boundaries.write(self._files, self._name, ends=True)
        return Written(self._files.commit())

    def discard(self) -> None:
        self._files.discard()


def for_people(tokens: int) -> str:
    """Three digits and a prefix, as datatrove writes it: 1.23 MT."""
    exponent = len(str(tokens)) - 1
    value = tokens / 10 ** (exponent // 3 * 3)
    if round(value, 2 - exponent % 3) >= 10 ** (exponent % 3 + 1):  # 999,999 are 1.00 M
        exponent += 1
        value = tokens / 10 ** (exponent // 3 * 3)
    prefix = ("", "k", "M", "G", "T", "P", "E")[exponent // 3]
    return f"{value:.{2 - exponent % 3}f} {prefix}T"
