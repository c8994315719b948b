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
MOST = (1 << 21) - 3  # the two above are no ids: NONE, LATER
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_63, _42, _32, _21, _1 = np.uint64(63), np.uint64(42), np.uint64(32), np.uint64(21), np.uint64(1)
_ZERO = np.uint64(0)
_LOW_21 = np.uint64((1 << 21) - 1)
_SHIFT = np.uint64(40)
BASE = np.int32(-1)
UNREACHABLE = np.int32(-2)
NEVER_SEEN = np.uint64(0xFFFFFFFFFFFFFFFF)
NONE, LATER = np.uint64((1 << 21) - 1), np.uint64((1 << 21) - 2)


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
def token_parts(symbols, starts, left, right, merged, pairs, rank_of, parts):
    """What each token is made of: ``symbols`` (int32) [starts[t]:starts[t + 1]] are the base symbols of token t's text,
    none where it is no token or has a symbol that is none.

    ``rank_of`` (int32 [ids]): the rank of the merge that makes token t out of its own text, BASE for a base symbol,
    UNREACHABLE where merging its text leads elsewhere. ``parts`` (uint64 [ids]), for those that it does not: in bits 42-62
    that rank plus one, in bits 21-41 and 0-20 the two tokens of the merge, the token itself twice for base symbols; in bit
    63 whether it is plain: no part of it was made at a higher rank than the whole.
    """
    longest = 1
    for t in range(len(rank_of)):
        longest = max(longest, starts[t + 1] - starts[t])
    tokens = np.empty(longest, np.int32)
    ranks = np.empty(longest, np.int64)
    for t in range(len(rank_of)):
        n = starts[t + 1] - starts[t]
        rank_of[t] = UNREACHABLE
        parts[t] = 0
        if n == 0:
            continue
        tokens[:n] = symbols[starts[t] : starts[t + 1]]
        m, last = merge_scan(tokens, n, pairs, merged, ranks)
        if m == 1 and tokens[0] == t:
            rank_of[t] = BASE if last == NO_RANK else last
    # Parts can have higher ids than the whole: go by length.
    order = np.argsort(starts[1:] - starts[:-1], kind="mergesort")
    for t in order:
        if rank_of[t] == BASE:
            parts[t] = (_1 << _63) | (np.uint64(t) << _21) | np.uint64(t)
        elif rank_of[t] >= 0:
            a, b = np.int64(left[rank_of[t]]), np.int64(right[rank_of[t]])
            plain = (parts[a] & parts[b]) >> _63 if rank_of[a] < rank_of[t] and rank_of[b] < rank_of[t] else _ZERO
            parts[t] = (plain << _63) | (np.uint64(rank_of[t] + 1) << _42) | (np.uint64(a) << _21) | np.uint64(b)


@plain_kernel
def stand_side_by_side(a, b, pairs, parts):
    """Whether merging the text of token a followed by that of token b gives just these two. Both are plain.

    Undoes the later of the two last merges, again and again: at each step the two tokens at the border were there together
    until the merge just undone, so if they merge at a lower rank (at the same one, which is the same pair, only on the left
    side of it: leftmost first) they would have merged with each other instead. ``parts``: see ``token_parts``. Which of the
    two is undone is no branch: it could not be predicted.
    """
    limit = 2 * NO_RANK
    while True:
        if 2 * pair_rank(a, b, pairs) < limit:
            return False
        of_a, of_b = get(parts, a), get(parts, b)
        made_a, made_b = np.int64((of_a >> _42) & _LOW_21), np.int64((of_b >> _42) & _LOW_21)
        if made_a | made_b == 0:
            return True
        # Of equal ranks the left merge was made first: the right one is undone first.
        undo_right = made_b >= made_a
        limit = 2 * (max(made_a, made_b) - 1) + np.int64(undo_right)
        right_of_a, left_of_b = np.int64(of_a & _LOW_21), np.int64((of_b >> _21) & _LOW_21)
        a = a if undo_right else right_of_a
        b = left_of_b if undo_right else b


@kernel
def token_sides(left, right, merged, rank_of, parts, sides):
    """``sides`` (uint64 [2 * ids]) of what each token can merge with at its ends, for ``may_merge``: sides[2 t] has a bit for
    each token that one at the right end of t (t, the right part of t, the right part of that, ..) merges with, where that
    comes before the merge that made it a part; sides[2 t + 1] has a bit for each token at the left end. The bits are
    hashes. Bit 63: of tokens that are not plain, see ``token_parts``, and of all on the other side, so that these always
    may."""
    n = len(rank_of)
    merging = np.zeros(n, np.uint64)  # by the token on the left, those on its right in the merges so far
    for t in range(n):
        sides[2 * t] = _1 << _63
        sides[2 * t + 1] = _bit(t)
    for r in range(len(merged)):
        t = merged[r]
        if rank_of[t] != r:
            continue
        a, b = left[r], right[r]
        merging[a] |= _bit(b)
        sides[2 * t] |= merging[b] | sides[2 * b]
        sides[2 * t + 1] |= sides[2 * a + 1]
    for t in range(n):
        sides[2 * t] |= merging[t]
        if parts[t] >> _63 == _ZERO:
            sides[2 * t] = ~_ZERO
            sides[2 * t + 1] = ~_ZERO


@plain_kernel
def _bit(t):
    return _1 << np.uint64(((np.uint64(t) * MIX_1 >> _32) * _63) >> _32)


@plain_kernel
def may_merge(a, b, sides):
    """False: token a followed by token b stays so, as merging leaves their border alone. Else it is not known."""
    return (get(sides, 2 * a) & get(sides, 2 * b + 1)) != _ZERO


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
def seen_place(a, b, seen):
    """(key of a followed by b, where ``seen`` would have it)."""
    key = (np.uint64(a) << _21) | np.uint64(b)
    return key, np.int64((key * MIX_2) >> _SHIFT) & np.int64(len(seen) - 1)


@plain_kernel
def compatible(a, b, pairs, merged, parts, sides, symbols, starts, seen, tokens, ranks):
    """Whether merging the text of token a followed by that of token b gives just these two. ``seen`` (uint64, a power of two
    of them) remembers answers: a << 42 | b << 21 | the first token of b, the longest that begins it, .. that is compatible with
    a, NONE, or LATER for one that is not b."""
    if not may_merge(a, b, sides):
        return True
    key, q = seen_place(a, b, seen)
    known = get(seen, q)
    if (known >> _21) == key:
        return (known & _LOW_21) == np.uint64(b)
    if ((get(parts, a) & get(parts, b)) >> _63) != _ZERO:
        answer = stand_side_by_side(a, b, pairs, parts)
    else:
        answer = side_by_side_at_length(a, b, pairs, merged, symbols, starts, tokens, ranks)
    put(seen, q, (key << _21) | (np.uint64(b) if answer else LATER))
    return answer


@plain_kernel
def longest_compatible(a, b, shorter, pairs, merged, parts, sides, symbols, starts, seen, tokens, ranks):
    """The first of b, shorter[b], shorter[shorter[b]], .. that is compatible with a; -1 for none."""
    if not may_merge(a, b, sides):
        return b
    key, q = seen_place(a, b, seen)
    known = get(seen, q)
    if (known >> _21) == key and (known & _LOW_21) != LATER:
        found = np.int64(known & _LOW_21)
        return found if np.uint64(found) != NONE else np.int64(-1)
    while b >= 0 and not compatible(a, b, pairs, merged, parts, sides, symbols, starts, seen, tokens, ranks):
        b = np.int64(get(shorter, b))
    put(seen, q, (key << _21) | (np.uint64(b) if b >= 0 else NONE))
    return b
