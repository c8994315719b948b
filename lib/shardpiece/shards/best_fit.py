"""Which piece goes into which row: best-fit-decreasing bin packing (Johnson 1973), by length instead of piece by piece.

All rows with the same space left are alike to it, and so are all pieces of one length: a row takes as many pieces of the
longest length left as it can, and all rows of one kind take theirs in one step. There are at most as many steps as pieces,
and far fewer where many documents are of few lengths.
"""

from bisect import bisect_left, insort

import numpy as np


def best_fit_decreasing(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The row of every piece, int64 [n]: the pieces (int64, 1 to ``capacity``) from the longest to the shortest, each into
    the row with the least space that is enough for it, or a new one."""
    by_length = np.argsort(-lengths, kind="stable")
    assigned = np.empty(len(lengths), np.int64)
    rows = _Rows()
    at = 0
    distinct, counts = np.unique(lengths, return_counts=True)
    for length, count in zip(distinct[::-1].tolist(), counts[::-1].tolist(), strict=True):
        end = at + count
        while at < end:
            space, numbers = rows.best(length, end - at, capacity)
            each = space // length
            filled = np.repeat(numbers, each)[: end - at]
            assigned[by_length[at : at + len(filled)]] = filled
            at += len(filled)
            left_over = len(numbers) * each - len(filled)  # the last row is not full yet, and there are no more pieces
            if left_over:
                rows.put_back(space - (each - left_over) * length, numbers[-1:])
                numbers = numbers[:-1]
            rows.put_back(space - each * length, numbers)
    return assigned


class _Rows:
    """Rows by the space that is left in them."""

    def __init__(self) -> None:
        self._by_space: dict[int, list[np.ndarray]] = {}
        self._spaces: list[int] = []  # ascending
        self._count = 0

    def best(self, length: int, pieces: int, capacity: int) -> tuple[int, np.ndarray]:
        """(space, numbers of rows with just so much space, taken out): those with the least that is enough for pieces of
        this length, no more rows than so many pieces need."""
        i = bisect_left(self._spaces, length)
        if i == len(self._spaces):
            count = -(-pieces // (capacity // length))
            self._count += count
            return capacity, np.arange(self._count - count, self._count)
        space = self._spaces[i]
        parts = self._by_space[space]
        numbers = parts[0] if len(parts) == 1 else np.concatenate(parts)
        needed = -(-pieces // (space // length))
        if needed < len(numbers):
            self._by_space[space] = [numbers[needed:]]
            return space, numbers[:needed]
        del self._by_space[space], self._spaces[i]
        return space, numbers

    def put_back(self, space: int, numbers: np.ndarray) -> None:
        if not space or not len(numbers):
            return
        if space in self._by_space:
            self._by_space[space].append(numbers)
        else:
            self._by_space[space] = [numbers]
            insort(self._spaces, space)
