"""Documents packed into rows of ``sequence_length`` tokens, in one of two ways.

``concatenate``: all tokens in a row, cut every ``sequence_length`` tokens. ``best_fit`` (Ding et al. 2024, "Fewer
Truncations Improve Language Modeling"): documents that are too long are cut into full pieces and a rest, then all pieces
are put into rows by best-fit-decreasing, and none is cut again.

Every row names its documents and where each ends (Pieces), padding excluded: attention that is kept within documents never
sees it, and a loss is masked behind the row's last end. What does not read these sees the id of the padding token. Rows do
not depend on the batches in which documents arrive.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from shardpiece.errors import ConfigError
from shardpiece.shards.best_fit import best_fit_decreasing
from shardpiece.shards.formats.base import Pieces, TokenBatch
from shardpiece.shards.rows import join_rows, slice_rows, take_rows, without_empty_rows
from shardpiece.shards.spool import RowSpool

# sequences: rows; packed_tokens: tokens in them, pad_tokens beside; dropped_documents: of which no token is left;
# cut_documents: in more than one row, or in one and in the tail.
STATISTICS = ("sequences", "packed_tokens", "pad_tokens", "dropped_tokens", "dropped_documents", "carried_tokens",
              "cut_documents", "documents_without_tokens")  # fmt: skip


@dataclass(frozen=True)
class Packing:
    """``strategy``: concatenate | best_fit. ``remainder``, what becomes of a row at the end that is not full: pad | drop |
    carry (on to the rows of all shards' tails). With best_fit that row is the one that is at most half full (two such
    would have become one), and all others are padded. ``long_documents``: split | keep, each longer than a row as a row of
    its own, as long as it is. ``pad_id``: None where nothing is padded. Raises ConfigError."""

    strategy: str
    sequence_length: int
    remainder: str = "pad"
    long_documents: str = "split"
    pad_id: int | None = None

    def __post_init__(self) -> None:
        for key, known in (("strategy", ("concatenate", "best_fit")), ("remainder", ("pad", "drop", "carry")),
                           ("long_documents", ("split", "keep"))):  # fmt: skip
            if getattr(self, key) not in known:
                raise ConfigError(f"packing: {key} is {getattr(self, key)!r}; it can be {', '.join(known)}")
        if self.sequence_length < 1:
            raise ConfigError(f"packing: sequence_length is {self.sequence_length}; it is 1 at least")
        if self.pad_id is None and (self.strategy == "best_fit" or self.remainder != "drop"):
            raise ConfigError(
                "packing: rows are padded, and there is no token for it. Name one with pad_token, or let concatenate "
                "leave out what does not fill a row, with remainder: drop"
            )

    @property
    def row_length(self) -> int | None:
        """Tokens in every row; None where rows may be longer."""
        return None if self.long_documents == "keep" else self.sequence_length

    def of_tails(self) -> "Packing":
        """How the tails of all shards are packed, in the order of the shards."""
        return replace(self, remainder="pad")


class Packed(NamedTuple):
    """What is left when all documents are there: rows; the tail, one row per piece of a document, unpadded, None without
    ``remainder: carry`` or where there is nothing of it; STATISTICS of all rows."""

    batches: Iterator[TokenBatch]
    tail: TokenBatch | None
    statistics: dict[str, int]


class Packer:
    """Packs the documents of one shard. ``memory``: bytes for what has to wait (the documents of best_fit), more of it
    waits in a file in ``directory``, see RowSpool."""

    def __init__(self, packing: Packing, memory: int = 256 << 20, directory: str | None = None):
        if packing.strategy == "best_fit":
            self._packer = _BestFit(packing, memory, directory)
        else:
            self._packer = _Concatenate(packing)

    def add(self, batch: TokenBatch) -> list[TokenBatch]:
        """The rows that are done with these documents (or pieces, as a tail has them). Of the batch's columns, the ids go
        along. Documents without tokens are in no row."""
        documents = without_empty_rows(batch)
        self._packer.statistics["documents_without_tokens"] += len(batch) - len(documents)
        return self._packer.add(documents) if len(documents) else []

    def finish(self) -> Packed:
        """The other rows. ``batches`` is run through once, before ``close``."""
        return self._packer.finish()

    def close(self) -> None:
        """Give up what waits; not needed after ``batches`` has run to its end."""
        self._packer.close()


class _Concatenate:
    """Holds what is not a row yet: pieces of less than ``sequence_length`` tokens together."""

    def __init__(self, packing: Packing):
        self._packing = packing
        self._rest: TokenBatch | None = None
        self._rest_is_cut = False  # whether the first piece of the rest goes on from the row before
        self.statistics = dict.fromkeys(STATISTICS, 0)

    def close(self) -> None:
        self._rest = None

    def add(self, documents: TokenBatch) -> list[TokenBatch]:
        lengths = np.diff(documents.offsets)
        long = lengths > self._packing.sequence_length
        if self._packing.long_documents == "split" or not long.any():
            return self._fill(documents)[0]
        # A document that is a row comes where it ends, as other rows do: in front of the row that is being filled.
        kept, others = np.flatnonzero(long), np.flatnonzero(~long)
        rows = take_rows(documents, kept)
        rows = replace(rows, ids=None, pieces=Pieces(np.arange(len(kept) + 1), lengths[kept], rows.ids))
        self._count(rows, 0)
        if not len(others):
            return [rows]
        filled, last = self._fill(take_rows(documents, others))
        order = np.argsort(np.concatenate([kept, others[last]]), kind="stable")
        return [take_rows(join_rows([rows, *filled]), order)]

    def _fill(self, documents: TokenBatch) -> tuple[list[TokenBatch], np.ndarray]:
        """(full rows, in which of the documents each ends)."""
        length = self._packing.sequence_length
        waiting = 0
        if self._rest is not None:
            waiting = len(self._rest)
            documents = join_rows([self._rest, documents])
        ends = documents.offsets[1:]
        sequences = len(documents.tokens) // length
        row_ends = np.arange(1, sequences + 1) * length
        # The pieces: what lies between the ends of documents and of rows.
        piece_ends = np.union1d(ends[ends <= sequences * length], row_ends)
        document = np.searchsorted(ends, piece_ends)
        cut = documents.offsets[:-1] // length != (ends - 1) // length
        self.statistics["cut_documents"] += int(cut.sum())
        first = int(np.searchsorted(ends, sequences * length, side="right"))
        if first == len(ends):
            self._rest, self._rest_is_cut = None, False
        else:
            self._rest_is_cut = documents.offsets[first] < sequences * length or (self._rest_is_cut and first == 0)
            self._rest = _copy(_from_token(documents, first, sequences * length))
        if not sequences:
            return [], np.empty(0, np.int64)
        rows = TokenBatch(
            documents.tokens[: sequences * length],
            np.arange(sequences + 1) * length,
            pieces=Pieces(
                np.searchsorted(piece_ends, np.arange(sequences + 1) * length, side="right"),
                (piece_ends - 1) % length + 1,
                None if documents.ids is None else documents.ids.take(document),
            ),
        )
        self._count(rows, 0)
        return [rows], np.searchsorted(ends, row_ends) - waiting

    def _count(self, rows: TokenBatch, pad: int) -> None:
        self.statistics["sequences"] += len(rows)
        self.statistics["packed_tokens"] += len(rows.tokens) - pad
        self.statistics["pad_tokens"] += pad

    def finish(self) -> Packed:
        rest, self._rest = self._rest, None
        if rest is None:
            return Packed(iter(()), None, self.statistics)
        if self._packing.remainder == "carry":
            self.statistics["carried_tokens"] += len(rest.tokens)
            return Packed(iter(()), rest, self.statistics)
        if self._packing.remainder == "drop":
            self.statistics["dropped_tokens"] += len(rest.tokens)
            self.statistics["dropped_documents"] += len(rest) - int(self._rest_is_cut)
            return Packed(iter(()), None, self.statistics)
        row = _rows(rest, np.array([len(rest)]), self._packing)
        self._count(row, len(row.tokens) - len(rest.tokens))
        return Packed(iter([row]), None, self.statistics)


class _BestFit:
    """Lengths are in memory, tokens wait in a spool."""

    def __init__(self, packing: Packing, memory: int, directory: str | None):
        self._packing = packing
        self._spool = RowSpool(memory, directory)
        self._whole: list[np.ndarray] = []  # whether a piece is a document
        self.statistics = dict.fromkeys(STATISTICS, 0)

    def close(self) -> None:
        self._spool.close()

    def add(self, documents: TokenBatch) -> list[TokenBatch]:
        length = self._packing.sequence_length
        counts = -(-np.diff(documents.offsets) // length)
        if self._packing.long_documents == "keep":
            counts[:] = 1
        whole = np.repeat(counts == 1, counts)
        if not whole.all():
            self.statistics["cut_documents"] += int(np.count_nonzero(counts > 1))
            document = np.repeat(np.arange(len(counts)), counts)
            number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
            offsets = np.append(documents.offsets[document] + number * length, documents.offsets[-1])
            ids = None if documents.ids is None else documents.ids.take(document)
            documents = TokenBatch(documents.tokens, offsets, ids)
        self._whole.append(whole)
        self._spool.add(documents)
        return []

    def finish(self) -> Packed:
        lengths = self._spool.lengths()
        if not len(lengths):
            return Packed(iter(()), None, self.statistics)
        length = self._packing.sequence_length
        fits = lengths <= length
        row = np.empty(len(lengths), np.int64)
        row[fits] = best_fit_decreasing(lengths[fits], length)
        row[~fits] = len(lengths) + np.arange(np.count_nonzero(~fits))
        # Rows in the order of their first pieces, pieces as they came: near the order of the input, whatever the lengths.
        _, first, row = np.unique(row, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        row = rank[row]
        order = np.argsort(row, kind="stable")
        counts = np.bincount(row)
        ends = np.cumsum(counts)
        filled = np.diff(np.cumsum(lengths[order])[ends - 1], prepend=0)

        tail = None
        short = np.flatnonzero(2 * filled <= length)
        if len(short) and self._packing.remainder != "pad":
            number = short[0]  # the only one
            at, end = ends[number] - counts[number], ends[number]
            pieces, order = order[at:end], np.delete(order, slice(at, end))
            ends = np.delete(ends, number)
            ends[number:] -= end - at
            tokens = int(filled[number])
            filled = np.delete(filled, number)
            if self._packing.remainder == "carry":
                self.statistics["carried_tokens"] += tokens
                tail = join_rows(list(self._spool.take(pieces)))
            else:
                self.statistics["dropped_tokens"] += tokens
                self.statistics["dropped_documents"] += int(np.concatenate(self._whole)[pieces].sum())
        self.statistics["sequences"] += len(ends)
        self.statistics["packed_tokens"] += int(filled.sum())
        self.statistics["pad_tokens"] += int(np.maximum(length - filled, 0).sum())
        self._whole = []
        return Packed(self._rows(order, ends), tail, self.statistics)

    def _rows(self, order: np.ndarray, ends: np.ndarray) -> Iterator[TokenBatch]:
        at = done = 0
        with self._spool as spool:
            for pieces in spool.take(order, ends):
                end = done + len(pieces)
                until = int(np.searchsorted(ends, end)) + 1
                yield _rows(pieces, ends[at:until] - done, self._packing)
                at, done = until, end


def _rows(pieces: TokenBatch, ends: np.ndarray, packing: Packing) -> TokenBatch:
    """Rows of consecutive pieces, padded: row r is the pieces before ends[r] (int64) that no earlier one has."""
    piece_offsets = np.concatenate([[0], ends])
    starts = pieces.offsets[piece_offsets]
    filled = np.diff(starts)
    pad = np.maximum(packing.sequence_length - filled, 0)
    tokens = pieces.tokens
    if pad.any():
        is_token = np.repeat(np.tile([True, False], len(ends)), np.stack([filled, pad], 1).ravel())
        tokens = np.full(len(is_token), packing.pad_id, pieces.tokens.dtype)
        tokens[is_token] = pieces.tokens
    piece_ends = pieces.offsets[1:] - np.repeat(starts[:-1], np.diff(piece_offsets))
    offsets = np.concatenate([[0], np.cumsum(filled + pad)])
    return TokenBatch(tokens, offsets, pieces=Pieces(piece_offsets, piece_ends, pieces.ids))


def _from_token(documents: TokenBatch, first: int, start: int) -> TokenBatch:
    """The documents from number ``first`` on, that one from token ``start`` on where it begins before."""
    rest = slice_rows(documents, first, len(documents))
    skipped = max(0, start - int(documents.offsets[first]))
    offsets = np.maximum(rest.offsets - skipped, 0)
    return replace(rest, tokens=rest.tokens[skipped:], offsets=offsets)


def _copy(batch: TokenBatch) -> TokenBatch:
    """Of a view of a larger one, which need not stay in memory for it."""
    return take_rows(batch, np.arange(len(batch)))
