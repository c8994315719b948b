"""The vocabulary of a model: a piece for each id, held in three arrays so that kernels read it and a worker gets it as it
is, without a Python object per token."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.tokenizer import piece_kernels as k


class Vocabulary(Sequence):
    """A sequence of bytes | None: the piece of each id, None where an id is no piece.

    ``data``: uint8, the pieces one after the other; ``offsets``: int64 [ids + 1], piece i is data[offsets[i]:offsets[i +
    1]]; ``present``: bool [ids], False where there is no piece.
    """

    def __init__(self, data: np.ndarray, offsets: np.ndarray, present: np.ndarray):
        self.data = read_only(np.ascontiguousarray(data, np.uint8))
        self.offsets = read_only(np.ascontiguousarray(offsets, np.int64))
        self.present = read_only(np.ascontiguousarray(present, np.bool_))
        if len(self.offsets) != len(self.present) + 1 or self.offsets[0] or self.offsets[-1] != len(self.data):
            raise FormatError("the vocabulary's arrays do not fit each other")

    @classmethod
    def of(cls, pieces: Iterable[bytes | None]) -> "Vocabulary":
        """From pieces by id; a Vocabulary as it is."""
        if isinstance(pieces, cls):
            return pieces
        pieces = list(pieces)
        offsets = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([0 if piece is None else len(piece) for piece in pieces], out=offsets[1:])
        data = np.frombuffer(b"".join(piece for piece in pieces if piece is not None), np.uint8)
        vocabulary = cls(data, offsets, np.array([piece is not None for piece in pieces], bool))
        vocabulary.__dict__["_pieces"] = pieces
        return vocabulary

    @cached_property
    def _pieces(self) -> list[bytes | None]:
        raw, borders = self.data.tobytes(), self.offsets.tolist()
        present = self.present.tolist()
        return [raw[borders[i] : borders[i + 1]] if present[i] else None for i in range(len(present))]

    @cached_property
    def slots(self) -> np.ndarray:
        """int32: where kernels find the id of a piece (see ``piece_kernels``). Raises FormatError when two ids are the same
        piece."""
        return self.slots_of(self.present)

    def slots_of(self, wanted: np.ndarray, room: int = 2) -> np.ndarray:
        """``slots`` of the pieces that are ``wanted`` (bool [ids]) alone, at least ``room`` times as many."""
        slots = np.full(1 << max(4, (room * int(wanted.sum())).bit_length()), -1, np.int32)
        second = int(k.index_pieces(self.data, self.offsets, wanted, slots))
        if second >= 0:
            piece = self._pieces[second]
            first = self._pieces.index(piece)
            raise FormatError(f"tokens {first} and {second} are the same byte string {piece!r}")
        return slots

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """Id by piece. Raises FormatError when two ids are the same piece."""
        ids = {piece: i for i, piece in enumerate(self._pieces) if piece is not None}
        if len(ids) != int(self.present.sum()):
            self.check_distinct()
        return ids

    def check_distinct(self) -> None:
        """Raises FormatError when two ids are the same piece."""
        _ = self.slots

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, index):
        return tuple(self._pieces[index]) if isinstance(index, slice) else self._pieces[index]

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self._pieces)

    def __contains__(self, piece) -> bool:
        return piece in self._pieces if piece is None else piece in self.ids

    def __eq__(self, other) -> bool:
        if isinstance(other, Vocabulary):
            return (
                np.array_equal(self.present, other.present)
                and np.array_equal(self.offsets, other.offsets)
                and np.array_equal(self.data, other.data)
            )
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} ids, {int(self.present.sum()):,} pieces)"
