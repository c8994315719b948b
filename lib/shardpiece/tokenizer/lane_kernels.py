"""Numba kernels that merge several short words at once, each in 16 lanes.

A merge has to wait for memory twice, for the ranks of the two pairs that it makes. So the words of a batch take turns: each
makes one merge and asks for the memory of its new pairs, which has come when it is its turn again.

Word j has the symbols ``tokens`` (int32) [16 j:16 j + 16], of which those in the bits of ``alive`` (uint64 [j]) are left, and
in ``ranks`` (uint32), at the place of each symbol, the rank of merging it with the next one, shifted left by 4, and the place:
the least is the lowest rank, leftmost first. NO_MERGE where there is none.
"""

import numpy as np

from shardpiece.intrinsics import get, leading_zeros, least_of_16, put, trailing_zeros
from shardpiece.kernel_cache import plain_kernel
from shardpiece.tokenizer.pair_kernels import NO_RANK, pair_rank, prefetch_pair

TOGETHER = 32
NOTHING = np.int32((1 << 21) - 1)
NO_MERGE = np.uint32(0xFFFFFFFF)
_1, _4 = np.uint64(1), np.uint64(4)
_ZERO = np.uint64(0)


@plain_kernel
def pack_rank(rank, place):
    """A rank as ``ranks`` holds it."""
    return NO_MERGE if rank == NO_RANK else np.uint32((rank << 4) | place)


@plain_kernel
def merge_together(n, tokens, ranks, alive, changed, active, pairs, merged):
    """Merge n words, lowest rank first, leftmost first. ``changed``, ``active`` (int64 [n]): scratch.

    Each word has NOTHING behind its last symbol, which is alive and merges with none. There is no branch but for words that
    are done: the others could not be predicted.
    """
    for j in range(n):
        put(active, j, j)
    while n > 0:
        i = np.int64(0)
        while i < n:
            j = get(active, i)
            base = 16 * j
            best = least_of_16(ranks, base)
            if best == NO_MERGE:
                n -= 1
                put(active, i, get(active, n))
                continue
            place = np.int64(best) & 15
            left = get(alive, j)
            after = place + 1 + trailing_zeros(left >> np.uint64(place + 1))
            left &= ~(_1 << np.uint64(after))
            token = get(merged, np.int64(best) >> 4)
            put(tokens, base + place, token)
            put(ranks, base + after, NO_MERGE)
            put(alive, j, left)
            put(changed, j, place)
            after = place + 1 + trailing_zeros(left >> np.uint64(place + 1))
            prefetch_pair(token, get(tokens, base + after), pairs)
            prefetch_pair(get(tokens, base + before(left, place)), token, pairs)
            i += 1
        for i in range(n):
            j = get(active, i)
            base = 16 * j
            left = get(alive, j)
            place = get(changed, j)
            after = place + 1 + trailing_zeros(left >> np.uint64(place + 1))
            rank = pair_rank(get(tokens, base + place), get(tokens, base + after), pairs)
            put(ranks, base + place, pack_rank(rank, place))
            previous = before(left, place)
            after = place if previous < place else after
            rank = pair_rank(get(tokens, base + previous), get(tokens, base + after), pairs)
            put(ranks, base + previous, pack_rank(rank, previous))


@plain_kernel
def before(left, place):
    """The place of the symbol in front of ``place``, which itself where there is none."""
    lower = left & ((_1 << np.uint64(place)) - _1)
    return 63 - leading_zeros(lower) if lower != _ZERO else place


@plain_kernel
def alive_tokens(tokens, base, left, out):
    """The symbols left of the word at tokens[base:] into ``out``; returns their number. The last one alive is NOTHING."""
    left &= ~(_1 << np.uint64(63 - leading_zeros(left)))
    n = np.int64(0)
    while left != _ZERO:
        put(out, n, get(tokens, base + trailing_zeros(left)))
        left &= left - _1
        n += 1
    return n
