"""The order of rows within one shard: by keys that depend on the seed and the row's name, never on how rows arrive."""

from collections.abc import Iterator

import numpy as np
import xxhash

from shardpiece.shards.formats.base import TokenBatch
from shardpiece.shards.spool import RowSpool


class Shuffle:
    """Puts the rows of a shard in the order of their keys, in ``memory`` bytes: see RowSpool."""

    def __init__(self, memory: int, directory: str | None = None):
        self._spool = RowSpool(memory, directory)
        self._keys: list[np.ndarray] = []

    def add(self, batch: TokenBatch, keys: np.ndarray) -> None:
        """``keys``: uint64 [rows]."""
        self._spool.add(batch)
        self._keys.append(keys)

    def finish(self) -> Iterator[TokenBatch]:
        """All rows, in ascending order of their keys, equal ones as they were added."""
        keys = np.concatenate([np.empty(0, np.uint64), *self._keys])
        self._keys = []
        with self._spool as spool:
            yield from spool.take(np.argsort(keys, kind="stable"))

    def close(self) -> None:
        """Give the rows up; not needed after ``finish`` has run to its end."""
        self._spool.close()


def sequence_keys(seed: int, shard: str, first: int, count: int) -> np.ndarray:
    """Keys of the packed sequences number ``first`` and on of a shard: uint64 [count], no two of a shard alike (SplitMix64
    is a bijection; Steele, Lea and Flood 2014)."""
    start = xxhash.xxh3_64_intdigest(f"sequences {shard}".encode(), seed=seed & (1 << 64) - 1)
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
