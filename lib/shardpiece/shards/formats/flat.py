"""Formats that are the ids of all rows one after the other in a file, little-endian, and little else.

``bin`` (nanoGPT): no header, uint16 or uint32. ``llm.c`` (also modded-nanogpt): a header of 256 int32, the magic number
20240520, the version 1 and the number of ids, then uint16. ``npy``: an NPY file that ``numpy.load`` opens, of one dimension,
or of two where all rows are of one length, uint16 or uint32. Beside each, ``NAME.ends.npy`` and, of packed rows,
``NAME.pieces.npy`` (see boundaries.py).
"""

import io
from collections.abc import Iterator

import numpy as np

from shardpiece import storage
from shardpiece.errors import ConfigError, OutputError
from shardpiece.shards.formats.base import Row, ShardFile, ShardSpec, TokenBatch, Written, smallest_dtype
from shardpiece.shards.formats.boundaries import ENDS, PIECES, Boundaries, flat_rows, load_array, load_pieces, named
from shardpiece.shards.formats.files import ShardFiles

LLM_C_MAGIC, LLM_C_VERSION = 20240520, 1
_LLM_C_HEADER_BYTES = 1024
_INT32_MAX = 2**31 - 1


class _FlatFormat:
    """``suffix``: of the file with the ids."""

    name = ""
    suffix = ""
    extras = ()
    carries = frozenset({"pieces"})

    @property
    def suffixes(self) -> tuple[str, ...]:
        return tuple(suffix.replace(".", r"\.") for suffix in (self.suffix, ENDS, PIECES))

    def dtype(self, vocab_size: int) -> np.dtype:
        return smallest_dtype(vocab_size)

    def check(self, spec: ShardSpec) -> None:
        pass

    def open(self, directory: str, name: str, spec: ShardSpec) -> "_FlatWriter":
        return _FlatWriter(directory, name, self, spec)

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        return []

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        ends = load_array(directory, named(files, ENDS))
        own = [file for file in files if not file["name"].endswith((ENDS, PIECES))]
        path = storage.join(directory, named(own, self.suffix))
        dtype = self.dtype(spec.vocab_size)
        yield from flat_rows(path, dtype, ends, load_pieces(directory, files), self.read_header(path, dtype, ends))

    def header(self, boundaries: Boundaries, spec: ShardSpec) -> bytes | None:
        """What precedes the ids, None for nothing. Raises OutputError when it cannot say how many they are."""
        return None

    def read_header(self, path: str, dtype: np.dtype, ends: np.ndarray) -> int:
        """Its size. Raises ValueError when it is another format's or says other numbers."""
        return 0


class _FlatWriter:
    def __init__(self, directory: str, name: str, format: _FlatFormat, spec: ShardSpec):
        self._name, self._format, self._spec = name, format, spec
        self._dtype = format.dtype(spec.vocab_size)
        self._files = ShardFiles(directory, format.name)
        self._boundaries = Boundaries(spec.packed)
        self._headed = format.header(self._boundaries, spec) is not None
        self._file = (self._files.open_headed if self._headed else self._files.open)(name + format.suffix)

    def write(self, batch: TokenBatch) -> None:
        if len(batch.tokens):
            self._file.write(np.ascontiguousarray(batch.tokens, self._dtype).data)
        self._boundaries.add(batch)

    def close(self) -> Written:
        if self._headed:
            header = self._format.header(self._boundaries, self._spec)
            self._files.seal_headed(self._name + self._format.suffix, header)
        self._boundaries.write(self._files, self._name, ends=True)
        return Written(self._files.commit())

    def discard(self) -> None:
        self._files.discard()


class BinFormat(_FlatFormat):
    name = "bin"
    suffix = ".bin"


class LlmCFormat(_FlatFormat):
    name = "llm.c"
    suffix = ".bin"

    def dtype(self, vocab_size: int) -> np.dtype:
        if vocab_size > 1 << 16:
            raise ConfigError(
                f"llm.c has uint16 ids alone, which end below 65,536, and the vocabulary has {vocab_size:,}: "
                f"choose another format, such as bin"
            )
        return np.dtype("<u2")

    def header(self, boundaries: Boundaries, spec: ShardSpec) -> bytes:
        if boundaries.tokens > _INT32_MAX:
            raise OutputError(
                f"llm.c counts the tokens of a shard in 32 bits, and this one has {boundaries.tokens:,}: "
                f"choose a smaller encode.shard_size"
            )
        header = np.zeros(_LLM_C_HEADER_BYTES // 4, "<i4")
        header[:3] = LLM_C_MAGIC, LLM_C_VERSION, boundaries.tokens
        return header.tobytes()

    def read_header(self, path: str, dtype: np.dtype, ends: np.ndarray) -> int:
        fs, inner = storage.filesystem(path)
        with fs.open(inner, "rb") as file:
            header = np.frombuffer(file.read(_LLM_C_HEADER_BYTES), "<i4")
        expected = [LLM_C_MAGIC, LLM_C_VERSION, ends[-1] if len(ends) else 0]
        if header[:3].tolist() != expected:
            raise ValueError(f"{path} begins with {header[:3].tolist()} instead of {expected}")
        return _LLM_C_HEADER_BYTES


class NpyFormat(_FlatFormat):
    name = "npy"
    suffix = ".npy"

    def header(self, boundaries: Boundaries, spec: ShardSpec) -> bytes:
        shape: tuple[int, ...] = (boundaries.tokens,)
        if spec.packed and spec.sequence_length:
            shape = (boundaries.tokens // spec.sequence_length, spec.sequence_length)
        out = io.BytesIO()
        described = {"descr": self.dtype(spec.vocab_size).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(out, described)
        return out.getvalue()

    def read_header(self, path: str, dtype: np.dtype, ends: np.ndarray) -> int:
        fs, inner = storage.filesystem(path)
        with fs.open(inner, "rb") as file:
            np.lib.format.read_magic(file)
            shape, _, found = np.lib.format.read_array_header_1_0(file)
            if found != dtype or int(np.prod(shape)) != (ends[-1] if len(ends) else 0):
                raise ValueError(f"{path} holds {found.name} of shape {shape}, not what was written")
            return file.tell()
