"""Documents on their way to the rows of a shard: put in order, packed, and the packed sequences put in order again."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from shardpiece.shards.formats.base import TokenBatch
from shardpiece.shards.packing import Packer, Packing
from shardpiece.shards.shuffle import Shuffle, sequence_keys


class Arrangement:
    """``name``: of the shard; ``packing``: None for a row per document; ``seed``: of the order, None for that in which
    documents come; ``keep_ids``: whether anybody wants to know them; ``memory``: bytes for all that waits, see RowSpool."""

    def __init__(self, name: str, packing: Packing | None, seed: int | None, keep_ids: bool, memory: int):
        self._name, self._seed, self._keep_ids = name, seed, keep_ids
        # Two things wait at a time: what comes out of one goes into the next.
        self._documents = None if seed is None else Shuffle(memory // 2)
        self._packer = None if packing is None else Packer(packing, memory // 2)
        self._sequences = None if seed is None or packing is None else Shuffle(memory // 2)
        self.rows = 0
        self.tail: TokenBatch | None = None  # once ``finish`` has run to its end
        self.statistics: dict[str, int] = {}  # of packing, likewise

    def add(self, documents: TokenBatch, keys: np.ndarray | None) -> Iterator[TokenBatch]:
        """Add documents, with keys (uint64 [rows]) where there is an order. Yields the rows that are ready."""
        if not self._keep_ids:
            documents = replace(documents, ids=None)
        if self._packer is not None:
            documents = replace(documents, metadata=None)
        if self._documents is None:
            yield from self._packed(documents)
        else:
            self._documents.add(documents, keys)

    def add_tail(self, pieces: TokenBatch) -> Iterator[TokenBatch]:
        """Add the tail of a shard, which is in order already."""
        yield from self._packed(pieces)

    def finish(self) -> Iterator[TokenBatch]:
        """The other rows."""
        if self._documents is not None:
            for documents in self._documents.finish():
                yield from self._packed(documents)
        if self._packer is not None:
            batches, self.tail, self.statistics = self._packer.finish()
            for rows in batches:
                yield from self._ordered(rows)
        if self._sequences is not None:
            yield from self._sequences.finish()

    def close(self) -> None:
        """Give up what waits; not needed after ``finish`` has run to its end."""
        for waiting in (self._documents, self._packer, self._sequences):
            if waiting is not None:
                waiting.close()

    def _packed(self, documents: TokenBatch) -> Iterator[TokenBatch]:
        for rows in [documents] if self._packer is None else self._packer.add(documents):
            yield from self._ordered(rows)

    def _ordered(self, rows: TokenBatch) -> Iterator[TokenBatch]:
        first = self.rows
        self.rows += len(rows)
        if self._sequences is None:
            yield rows
        else:
            self._sequences.add(rows, sequence_keys(self._seed, self._name, first, len(rows)))
