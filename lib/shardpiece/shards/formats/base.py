"""What a shard format is: rows in, files out, and rows back.

A row is a document, or a sequence that packing made of documents. A format says which type its ids are, opens a writer
for one shard, and once all shards are there writes what its readers need beside them, such as an index.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from shardpiece import storage


@dataclass(frozen=True)
class Pieces:
    """The documents in packed rows: row r holds the pieces offsets[r] to offsets[r + 1] (int64 [rows + 1]); ``ends``
    (int64) says where each ends, in tokens from the start of its row; ``ids`` whose they are, where ids are known. What
    follows the last piece of a row is padding."""

    offsets: np.ndarray
    ends: np.ndarray
    ids: pa.Array | None = None


@dataclass(frozen=True)
class TokenBatch:
    """Rows: ``tokens`` (uint16, uint32 or int32) of all, row r from offsets[r] to offsets[r + 1] (int64 [rows + 1], from 0).

    ``ids``: string array, None where no format asks for it; ``metadata``: the carried columns, a row each; ``pieces``: of
    packed rows."""

    tokens: np.ndarray
    offsets: np.ndarray
    ids: pa.Array | None = None
    metadata: pa.RecordBatch | None = None
    pieces: Pieces | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class ShardSpec:
    """What is the same for all shards of a run. ``tokenizer``: its fingerprint; ``sequence_length``: where every row has
    so many tokens; ``packed``: whether rows are sequences made of documents; ``metadata``: schema of the carried columns."""

    vocab_size: int
    tokenizer: str = ""
    sequence_length: int | None = None
    packed: bool = False
    metadata: pa.Schema | None = None
    eos_id: int | None = None


@dataclass(frozen=True)
class ShardFile:
    """A written file: its name relative to the directory of the shards, size, checksum and whose format it is."""

    name: str
    bytes: int
    checksum: str
    format: str

    def as_dict(self) -> dict:
        return asdict(self)


class Row(NamedTuple):
    """A row as it is read back; ``piece_ends`` of a packed one, where the format holds them."""

    id: str | None
    tokens: np.ndarray
    piece_ends: np.ndarray | None = None


@dataclass
class Written:
    """What a writer leaves: the files, and what ``finish`` of its format has to know of this shard (JSON)."""

    files: list[ShardFile]
    extra: dict = field(default_factory=dict)


class ShardWriter(Protocol):
    """Writes one shard of one format. Nothing is visible before ``close``."""

    def write(self, batch: TokenBatch) -> None: ...

    def close(self) -> Written: ...

    def discard(self) -> None: ...


class Format(Protocol):
    """``suffixes``: what the names of a shard's files end with (regular expressions); ``extras``: names of files beside the
    shards; ``carries``: which of "ids", "metadata" and "pieces" it has a place for."""

    name: str
    suffixes: tuple[str, ...]
    extras: tuple[str, ...]
    carries: frozenset[str]

    def dtype(self, vocab_size: int) -> np.dtype:
        """What the ids in its files are. Raises ConfigError when it cannot say ids below ``vocab_size``."""
        ...

    def check(self, spec: ShardSpec) -> None:
        """Raises ConfigError for what the format cannot hold."""
        ...

    def open(self, directory: str, name: str, spec: ShardSpec) -> ShardWriter: ...

    def finish(self, directory: str, shards: list[dict], spec: ShardSpec) -> list[ShardFile]:
        """Write what stands beside the shards, of which ``shards`` are the manifest's entries; [] for nothing."""
        ...

    def read(self, directory: str, files: list[dict], spec: ShardSpec) -> Iterator[Row]:
        """The rows of one shard, whose ``files`` of this format the manifest lists, in their order."""
        ...


def smallest_dtype(vocab_size: int) -> np.dtype:
    """The smaller of uint16 and uint32 that holds every id below ``vocab_size``, special tokens included."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def shard_file(staged: storage.StagedFile, name: str, format_name: str) -> ShardFile:
    """The entry of a file that was just committed under ``name``."""
    return ShardFile(name, staged.size, staged.checksum, format_name)
