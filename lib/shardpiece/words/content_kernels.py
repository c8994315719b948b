"""Numba kernel that hashes the rows of a word table independently of their order and partitioning."""

import numpy as np
from numba import njit

from shardpiece.intrinsics import MIX_1, MIX_2, hash_bytes

_SHIFT_31 = np.uint64(31)


@njit(nogil=True, cache=True)
def content_sums(words, word_starts, groups, group_starts, counts, sums):
    """Add every row's two 64-bit hashes to ``sums`` (uint64 [2], wrapping); addition makes the order irrelevant."""
    for i in range(len(counts)):
        for lane in range(2):
            h = hash_bytes(words, word_starts[i], word_starts[i + 1], np.uint64(lane))
            g = hash_bytes(groups, group_starts[i], group_starts[i + 1], np.uint64(lane + 2))
            h = (h ^ (g * MIX_2)) + np.uint64(counts[i]) * MIX_1
            h ^= h >> _SHIFT_31
            h *= MIX_2
            sums[lane] += h ^ (h >> _SHIFT_31)
