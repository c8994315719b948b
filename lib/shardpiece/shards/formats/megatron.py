"""``megatron``, as Megatron-LM and GPT-NeoX read it (megatron.core.datasets.indexed_dataset): ``NAME.bin``, ids without a
header, and ``NAME.idx``, all little-endian: "MMIDIDX\\0\\0", version 1 (u64), the type of the ids (u8), numbers of sequences
and of documents + 1 (u64 each), tokens of each sequence (i32), its byte offset (i64), and at which sequence each document
begins, with the number of sequences at the end (i64).

Every row is a sequence, and a document of its own. Where packed rows hold several documents, Megatron has no place for that:
``NAME.pieces.npy`` has (see boundaries.py). A memory map of nothing is refused there, so the ``.bin`` of a shard without
tokens holds one 0 that no sequence refers to.
"""

import struct
from collections.abc import Iterator

import numpy as np

from shardpiece import storage
from shardpiece.errors import ConfigError, OutputError
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written
from shardpiece.shards.formats.boundaries import Boundaries, flat_rows, load_pieces, named
from shardpiece.shards.formats.files import ShardFiles

MAGIC = b"MMIDIDX\0\0"
CODES = {"uint16": 8, "int32": 4}
_MOST_TOKENS = 2**31 - 1  # of a sequence
_BLOCK = 1 << 20  # numbers of the index that are computed and written at a time


class MegatronFormat:
    name = "megatron"
    suffixes = (r"\.bin", r"\.idx", r"\.pieces\.npy")
    extras = ()
    carries = frozenset({"pieces"})

    def dtype(self, vocab_size: int) -> np.dtype:
        """uint16 below 65,500 as Megatron chooses it, else int32."""
        if vocab_size > 1 << 31:
            raise ConfigError(f"megatron has ids of 31 bits at most, and the vocabulary has {vocab_size:,}")
        return np.dtype("<u2") if vocab_size < 65500 else np.dtype("<i4")

    def check(self, spec: ShardSpec) -> None:
        if spec.sequence_length is not None:
            _check_length(spec.sequence_length)

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_MegatronWriter":
        return _MegatronWriter(directory, name, self.dtype(spec.vocab_size), spec.packed)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        return []

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        lengths = _read_index(storage.join(directory, named(files, ".idx")), self.dtype(spec.vocab_size))
        ends = np.cumsum(lengths, dtype=np.int64)
        path = storage.join(directory, named(files, ".bin"))
        yield from flat_rows(path, self.dtype(spec.vocab_size), ends, load_pieces(directory, files))


def _check_length(tokens: int) -> None:
    if tokens > _MOST_TOKENS:
        raise OutputError(f"megatron has sequences of 2,147,483,647 tokens at most, and one has {tokens:,}: pack them")


class _MegatronWriter:
    def __init__(self, directory: str, name: str, dtype: np.dtype, packed: bool):
        self._name, self._dtype = name, dtype
        self._files = ShardFiles(directory, "megatron")
        self._file = self._files.open(f"{name}.bin")
        self._boundaries = Boundaries(packed)

    def write(self, batch: TokenBatch) -> None:
        if len(batch):
            _check_length(int(np.diff(batch.offsets).max()))
        if len(batch.tokens):
            self._file.write(np.ascontiguousarray(batch.tokens, self._dtype).data)
        self._boundaries.add(batch)

    def close(self) -> Written:
        if not self._boundaries.tokens:
            self._file.write(bytes(self._dtype.itemsize))
        index = self._files.open(f"{self._name}.idx")
        ends = self._boundaries.ends()
        index.write(MAGIC + struct.pack("<QBQQ", 1, CODES[self._dtype.name], len(ends), len(ends) + 1))
        for numbers in _index(ends, self._dtype.itemsize):
            index.write(numbers.data)
        self._boundaries.write(self._files, self._name, ends=False)
        return Written(self._files.commit())

    def discard(self) -> None:
        self._files.discard()


def _index(ends: np.ndarray, itemsize: int) -> Iterator[np.ndarray]:
    """What follows the numbers of sequences and documents, in blocks."""
    starts = range(0, len(ends), _BLOCK)
    for a in starts:
        yield np.diff(ends[a : a + _BLOCK], prepend=ends[a - 1] if a else 0).astype("<i4")
    for a in starts:
        offsets = np.empty(min(_BLOCK, len(ends) - a), "<i8")
        offsets[0] = ends[a - 1] if a else 0
        offsets[1:] = ends[a : a + len(offsets) - 1]
        yield offsets * itemsize
    for a in range(0, len(ends) + 1, _BLOCK):
        yield np.arange(a, min(a + _BLOCK, len(ends) + 1), dtype="<i8")


def _read_index(path: str, dtype: np.dtype) -> np.ndarray:
    """Tokens of every sequence, int32. Raises ValueError when the index is none, or one of other files."""
    raw = storage.read_bytes(path)
    if len(raw) < 34 or not raw.startswith(MAGIC):
        raise ValueError(f"{path} is no Megatron index")
    version, code, count, documents = struct.unpack_from("<QBQQ", raw, len(MAGIC))
    if (version, code, documents) != (1, CODES[dtype.name], count + 1) or len(raw) != 34 + 12 * count + 8 * documents:
        raise ValueError(f"{path} has version {version}, type {code}, {count} sequences: not what was written")
    lengths = np.frombuffer(raw, "<i4", count, 34)
    offsets = np.frombuffer(raw, "<i8", count, 34 + 4 * count)
    if count and (offsets[0] or not np.array_equal(np.diff(offsets), lengths[:-1].astype(np.int64) * dtype.itemsize)):
        raise ValueError(f"{path} has sequences that do not follow each other")
    return lengths
