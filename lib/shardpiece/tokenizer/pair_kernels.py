"""Numba kernels of the merges of a BPE: which pairs of tokens merge at which rank, what tokens are made of, and whether
two tokens can stand side by side.

``pairs`` (uint64, a power of two of buckets of 8, each a cache line, at most half used): left << 42 | right << 21 | rank,
in the first free place of the bucket that the pair's hash says, or of the next one when it is full; EMPTY where there is
nothing. Ids and ranks are below 2^21. ``merged`` (int32): the token that each rank makes. NO_RANK is larger than any rank.
"""

import numpy as np

from shardpiece.intrinsics import MIX_1, MIX_2, get, matches_of_8, prefetch, put, trailing_zeros
from shardpiece.kernel_cache import kernel, plain_kernel

NO_RANK = np.int64(1 << 21)
MOST = (1 << 21) - 2  # the one above stands for none
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_21, _1 = np.uint64(21), np.uint64(1)
_ZERO = np.uint64(0)
_LOW_21 = np.uint64((1 << 21) - 1)
_SHIFT = np.uint64(40)
BASE = np.int32(-1)
UNREACHABLE = np.int32(-2)
NEVER_SEEN = np.uint64(0xFFFFFFFFFFFFFFFF)


@plain_kernel
def pair_bucket(key, pairs):
    """Where the bucket of left << 21 | right begins."""
    return np.int64((key * MIX_1) >> _SHIFT) * 8 & np.int64(len(pairs) - 8)


@kernel
def fill_pairs(left, right, merged, wanted, pairs):
    """Enter the merges r = (left[r], right[r]) that make a token they are ``wanted`` for (bool); of equal pairs the first,
    lower rank counts."""
    for r in range(len(left)):
        if not wanted[r]:
            continue
        key = (np.uint64(left[r]) << _21) | np.uint64(right[r])
        q = pair_bucket(key, pairs)
        while pairs[q] != EMPTY and (pairs[q] >> _21) != key:
            q = (q + 1) & np.int64(len(pairs) - 1)
        if pairs[q] == EMPTY:
            pairs[q] = (key << _21) | np.uint64(r)


@plain_kernel
def prefetch_pair(a, b, pairs):
    """Ask for the cache line where ``pair_rank`` will look."""
    prefetch(pairs, pair_bucket((np.uint64(a) << _21) | np.uint64(b), pairs))


@plain_kernel
def pair_rank(a, b, pairs):
    """The rank (int64) of merging token a with token b, NO_RANK if there is none. Whether there is one is no branch: it
    could not be predicted."""
    key = (np.uint64(a) << _21) | np.uint64(b)
    q = pair_bucket(key, pairs)
    matches = matches_of_8(pairs, q, _21, key)
    while np.int64(matches == _ZERO) & np.int64(get(pairs, q + 7) != EMPTY):
        q = (q + 8) & np.int64(len(pairs) - 8)
        matches = matches_of_8(pairs, q, _21, key)
    found = np.int64(get(pairs, q + (trailing_zeros(matches) & 7)) & _LOW_21)
    return found if matches != _ZERO else NO_RANK


@plain_kernel
def merge_ranked(tokens, n, pairs, merged, ranks):
    """Merge tokens[:n] in place, lowest rank first, leftmost first; ``ranks`` (int64): those of neighbours. Returns what is
    left, and the rank of the last merge (NO_RANK for none). Takes n^2 steps at most: for short words."""
    last = NO_RANK
    while n > 1:
        best = NO_RANK
        j = np.int64(-1)
        for i in range(n - 1):
            if get(ranks, i) < best:
                best = get(ranks, i)
                j = i
        if j < 0:
            break
        put(tokens, j, get(merged, best))
        last = best
        n -= 1
        for i in range(j + 1, n):
            put(tokens, i, get(tokens, i + 1))
        for i in range(j + 1, n - 1):
            put(ranks, i, get(ranks, i + 1))
        if j < n - 1:
            put(ranks, j, pair_rank(get(tokens, j), get(tokens, j + 1), pairs))
        if j > 0:
            put(ranks, j - 1, pair_rank(get(tokens, j - 1), get(tokens, j), pairs))
    return n, last


@plain_kernel
def merge_scan(tokens, n, pairs, merged, ranks):
    """As ``merge_ranked``, with ``ranks`` as scratch."""
    for i in range(n - 1):
        put(ranks, i, pair_rank(get(tokens, i), get(tokens, i + 1), pairs))
    return merge_ranked(tokens, n, pairs, merged, ranks)


@kernel
def token_trees(symbols, starts, left, right, merged, pairs, tree, rank_of, plain):
    """What each token is made of: ``symbols`` (int32) [starts[t]:starts[t + 1]] are the base symbols of token t's text,
    none where it is no token or has a symbol that is none.

    ``rank_of`` (int32 [ids]): the rank of the merge that makes token t out of its own text, BASE for a base symbol,
    UNREACHABLE where merging its text leads elsewhere; ``tree`` (int32 [ids, 2]): the two tokens of that merge, the token
    itself twice for base symbols. ``plain`` (uint8): whether no part of it was made at a higher rank than the whole.
    """
    longest = 1
    for t in range(len(rank_of)):
        longest = max(longest, starts[t + 1] - starts[t])
    tokens = np.empty(longest, np.int32)
    ranks = np.empty(longest, np.int64)
    for t in range(len(rank_of)):
        n = starts[t + 1] - starts[t]
        tree[t, 0] = t
        tree[t, 1] = t
        plain[t] = 1
        rank_of[t] = UNREACHABLE
        if n == 0:
            continue
        tokens[:n] = symbols[starts[t] : starts[t + 1]]
        m, last = merge_scan(tokens, n, pairs, merged, ranks)
        if m != 1 or tokens[0] != t:
            continue
        rank_of[t] = BASE if last == NO_RANK else last
        if last != NO_RANK:
            tree[t, 0] = left[last]
            tree[t, 1] = right[last]
    # Parts can have higher ids than the whole: go by length.
    order = np.argsort(starts[1:] - starts[:-1], kind="mergesort")
    for t in order:
        if rank_of[t] >= 0:
            a, b = tree[t, 0], tree[t, 1]
            plain[t] = plain[a] != 0 and plain[b] != 0 and rank_of[a] < rank_of[t] and rank_of[b] < rank_of[t]


@plain_kernel
def stand_side_by_side(a, b, pairs, tree, rank_of):
    """Whether merging the text of token a followed by that of token b gives just these two. Both are plain.

    Undoes the later of the two last merges, again and again: at each step the two tokens at the border were there together
    until the merge just undone, so if they merge at a lower rank (at the same one, which is the same pair, only on the left
    side of it: leftmost first) they would have merged with each other instead.
    """
    limit = NO_RANK
    right_undone = False
    while True:
        rank = pair_rank(a, b, pairs)
        if rank < limit or (rank == limit and right_undone and rank != NO_RANK):
            return False
        ra, rb = np.int64(get(rank_of, np.int64(a))), np.int64(get(rank_of, np.int64(b)))
        if ra < 0 and rb < 0:
            return True
        # Of equal ranks the left merge was made first: the right one is undone first.
        if rb >= ra:
            limit = rb
            right_undone = True
            b = tree[b, 0]
        else:
            limit = ra
            right_undone = False
            a = tree[a, 1]


@plain_kernel
def side_by_side_at_length(a, b, pairs, merged, symbols, starts, tokens, ranks):
    """As ``stand_side_by_side`` for any tokens: merges their symbols. ``tokens`` (int32) and ``ranks`` (int64): scratch for
    twice the symbols of the longest token."""
    n, m = starts[a + 1] - starts[a], starts[b + 1] - starts[b]
    for i in range(n):
        put(tokens, i, get(symbols, starts[a] + i))
    for i in range(m):
        put(tokens, n + i, get(symbols, starts[b] + i))
    left, _ = merge_scan(tokens, n + m, pairs, merged, ranks)
    return left == 2 and tokens[0] == a and tokens[1] == b


@plain_kernel
def compatible(a, b, pairs, merged, tree, rank_of, plain, symbols, starts, seen, tokens, ranks):
    """Whether merging the text of token a followed by that of token b gives just these two. ``seen`` (uint64, a power of two
    of them) remembers answers: a << 22 | b << 1 | answer."""
    key = (np.uint64(a) << _21) | np.uint64(b)
    q = np.int64((key * MIX_2) >> _SHIFT) & np.int64(len(seen) - 1)
    known = get(seen, q)
    if (known >> _1) == key:
        return (known & _1) != np.uint64(0)
    if get(plain, a) != 0 and get(plain, b) != 0:
        answer = stand_side_by_side(a, b, pairs, tree, rank_of)
    else:
        answer = side_by_side_at_length(a, b, pairs, merged, symbols, starts, tokens, ranks)
    put(seen, q, (key << _1) | (_1 if answer else np.uint64(0)))
    return answer
