"""Numba kernels over whole word tables: a hash independent of order and partitioning, and sums over groups."""

import numpy as np

from shardpiece.intrinsics import MIX_1, MIX_2, hash_bytes
from shardpiece.kernel_cache import kernel

_SHIFT_31 = np.uint64(31)


@kernel
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


@kernel
def add_equal_neighbours(words, starts, counts, out, out_starts, out_counts):
    """Copy the words to ``out``, adding up the counts of equal ones that follow each other. Returns their number, or
    -1 as soon as a word is smaller than the one before it: then equal words may be apart."""
    n = 0
    at = 0
    for i in range(len(counts)):
        a = starts[i]
        size = starts[i + 1] - a
        if n > 0:
            b = out_starts[n - 1]
            before = at - b
            k = 0
            while k < size and k < before and words[a + k] == out[b + k]:
                k += 1
            if k == size and k == before:
                out_counts[n - 1] += counts[i]
                continue
            if k == size or (k < before and words[a + k] < out[b + k]):
                return -1
        for k in range(size):
            out[at + k] = words[a + k]
        at += size
        out_counts[n] = counts[i]
        n += 1
        out_starts[n] = at
    return n
