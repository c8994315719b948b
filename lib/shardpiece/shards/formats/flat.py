"""``bin``, as nanoGPT reads it: ``NAME.bin``, the ids of all rows one after the other, uint16 or uint32, little-endian and
without a header; and beside it ``NAME.ends.npy``, int64, the number of ids up to and including each row."""

from collections.abc import Iterator

import numpy as np

from shardpiece import storage
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written, shard_file, smallest_dtype


class BinFormat:
    name = "bin"
    suffixes = (r"\.bin", r"\.ends\.npy")
    extras = ()
    carries: frozenset[str] = frozenset()

    def dtype(self, vocab_size: int) -> np.dtype:
        return smallest_dtype(vocab_size)

    def check(self, spec: ShardSpec) -> None:
        pass

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_BinWriter":
        return _BinWriter(directory, name, self.dtype(spec.vocab_size))

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        return []

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        names = {file["name"].rsplit(".", 1)[-1]: storage.join(directory, file["name"]) for file in files}
        fs, inner = storage.filesystem(names["npy"])
        with fs.open(inner, "rb") as file:
            ends = np.lib.format.read_array(file, allow_pickle=False)
        dtype = self.dtype(spec.vocab_size)
        fs, inner = storage.filesystem(names["bin"])
        with fs.open(inner, "rb") as file:
            start = 0
            for end in ends.tolist():
                size = (end - start) * dtype.itemsize
                raw = file.read(size) if size else b""
                if len(raw) != size:
                    raise ValueError(f"{names['bin']} ends in the middle of a document")
                yield Row(None, np.frombuffer(raw, dtype))
                start = end


class _BinWriter:
    def __init__(self, directory: str, name: str, dtype: np.dtype):
        self._directory, self._name, self._dtype = directory, name, dtype
        self._file = storage.StagedFile(storage.join(directory, f"{name}.bin"))
        self._ends: list[np.ndarray] = []
        self._total = 0

    def write(self, batch: TokenBatch) -> None:
        if len(batch.tokens):
            self._file.write(batch.tokens.astype(self._dtype, copy=False).data)
        self._ends.append(batch.offsets[1:] + self._total)
        self._total += len(batch.tokens)

    def close(self) -> Written:
        ends = np.concatenate([np.empty(0, np.int64), *self._ends])
        with storage.staged(storage.join(self._directory, f"{self._name}.ends.npy")) as index:
            np.lib.format.write_array(index, ends)
            self._file.commit()
        return Written(
            [
                shard_file(self._file, f"{self._name}.bin", "bin"),
                shard_file(index, f"{self._name}.ends.npy", "bin"),
            ]
        )

    def discard(self) -> None:
        self._file.discard()
