"""Numba kernels that apply given merges to the words laid out for the merge loop.

Applying merge 0 everywhere, then merge 1, and so on, left to right each, equals repeating in each word the merge of
lowest rank, leftmost first: a merge of rank r makes pairs that contain the new symbol, and only merges of higher rank
have that as a part.

Pair table: ``pair_keys`` (int64, a power of two of them, left << 32 | right, -1 = empty), ``pair_ranks`` (int32).
"""

import numpy as np

from shardpiece.intrinsics import MIX_1
from shardpiece.kernel_cache import plain_kernel
from shardpiece.training.token_kernels import add_token, is_taken, joined_size, take

APPLIED = -1
BAD_ID = 0
BAD_REPEATED = 1
BAD_TAKEN = 2
BAD_LENGTH = 3
NEED_BYTES = 4

_LONG_WORD = 64
_NO_RANK = np.int64(1) << 40
_SHIFT_32 = np.uint64(32)
_LOW_32 = np.int64(0xFFFFFFFF)


@plain_kernel
def _slot(left, right, pair_keys):
    """Where the pair is, or would be entered."""
    key = (np.int64(left) << 32) | np.int64(right)
    mask = len(pair_keys) - 1
    q = np.int64((np.uint64(key) * MIX_1) >> _SHIFT_32) & mask
    while pair_keys[q] != key and pair_keys[q] >= 0:
        q = (q + 1) & mask
    return q


@plain_kernel
def add_merges(merges, first, base, end, max_length, tokens, allowed, pair_keys, pair_ranks):
    """Make the tokens of merges[first:] (int32 [m, 2]) and enter them into the pair table. ``base``: number of base
    symbols; ``end``: where spellings go. Returns (merge at which it stopped, why, end): APPLIED when all are done."""
    for i in range(first, len(merges)):
        left = np.int64(merges[i, 0])
        right = np.int64(merges[i, 1])
        if left < 0 or right < 0 or left >= base + i or right >= base + i:
            return i, BAD_ID, end
        q = _slot(left, right, pair_keys)
        if pair_keys[q] >= 0:
            return i, BAD_REPEATED, end
        if allowed.taken_used and is_taken(left, right, tokens, allowed.taken):
            return i, BAD_TAKEN, end
        if np.int64(tokens.length[left]) + np.int64(tokens.length[right]) > max_length:
            return i, BAD_LENGTH, end
        size = joined_size(left, right, tokens)
        if end + size > len(tokens.data):
            return i, NEED_BYTES, end + size
        pair_keys[q] = (left << 32) | right
        pair_ranks[q] = i
        add_token(base + i, end, left, right, tokens, allowed.prefix)
        if allowed.unique:
            take(base + i, tokens, allowed.taken)
        end += size
    return len(merges), APPLIED, end


@plain_kernel
def _rank(left, right, pair_keys, pair_ranks):
    q = _slot(left, right, pair_keys)
    return np.int64(pair_ranks[q]) if pair_keys[q] >= 0 else _NO_RANK


@plain_kernel
def _merge_short(ids, n, base, ranks, pair_keys, pair_ranks):
    """Merge ids[:n] in place by searching the lowest rank again and again; returns the number of symbols left."""
    for i in range(n - 1):
        ranks[i] = _rank(ids[i], ids[i + 1], pair_keys, pair_ranks)
    while n > 1:
        best = _NO_RANK
        at = -1
        for i in range(n - 1):
            if ranks[i] < best:
                best = ranks[i]
                at = i
        if at < 0:
            break
        ids[at] = base + best
        n -= 1
        for i in range(at + 1, n):
            ids[i] = ids[i + 1]
        for i in range(at + 1, n - 1):
            ranks[i] = ranks[i + 1]
        if at > 0:
            ranks[at - 1] = _rank(ids[at - 1], ids[at], pair_keys, pair_ranks)
        if at + 1 < n:
            ranks[at] = _rank(ids[at], ids[at + 1], pair_keys, pair_ranks)
    return n


@plain_kernel
def _push(heap, size, entry):
    x = size
    while x > 0 and heap[(x - 1) >> 1] > entry:
        heap[x] = heap[(x - 1) >> 1]
        x = (x - 1) >> 1
    heap[x] = entry


@plain_kernel
def _pop(heap, size):
    """Remove the smallest of ``size`` entries."""
    entry = heap[size - 1]
    size -= 1
    x = 0
    while True:
        y = 2 * x + 1
        if y >= size:
            break
        if y + 1 < size and heap[y + 1] < heap[y]:
            y += 1
        if heap[y] >= entry:
            break
        heap[x] = heap[y]
        x = y
    heap[x] = entry


@plain_kernel
def _merge_long(ids, n, base, ranks, heap, following, before, pair_keys, pair_ranks):
    """As _merge_short with a heap of rank << 32 | position: n log n. An entry is stale unless ranks[position] still is
    its rank; a symbol that was merged into its left neighbour has no rank."""
    size = 0
    for i in range(n):
        following[i] = i + 1
        before[i] = i - 1
        ranks[i] = _NO_RANK
        if i + 1 < n:
            rank = _rank(ids[i], ids[i + 1], pair_keys, pair_ranks)
            ranks[i] = rank
            if rank < _NO_RANK:
                _push(heap, size, (rank << 32) | i)
                size += 1
    while size > 0:
        rank = heap[0] >> 32
        i = heap[0] & _LOW_32
        _pop(heap, size)
        size -= 1
        if ranks[i] != rank:
            continue
        j = np.int64(following[i])
        k = np.int64(following[j])
        ids[i] = base + rank
        ids[j] = -1
        ranks[j] = _NO_RANK
        following[i] = k
        ranks[i] = _NO_RANK
        if k < n:
            before[k] = i
            rank = _rank(ids[i], ids[k], pair_keys, pair_ranks)
            ranks[i] = rank
            if rank < _NO_RANK:
                _push(heap, size, (rank << 32) | i)
                size += 1
        h = np.int64(before[i])
        if h >= 0:
            rank = _rank(ids[h], ids[i], pair_keys, pair_ranks)
            ranks[h] = rank
            if rank < _NO_RANK:
                _push(heap, size, (rank << 32) | h)
                size += 1
    m = 0
    for i in range(n):
        if ids[i] >= 0:
            ids[m] = ids[i]
            m += 1
    return m


@plain_kernel
def replay(symbol, word_at, first, last, target, base, pair_keys, pair_ranks, ids, ranks, heap, following, before):
    """Apply the merges to the words that begin in slots first <= i < last, whose symbols are base symbols, and write
    what has two symbols or more to the slots from ``target`` <= first on. Scratch for the longest word n: ``ids``,
    ``following``, ``before`` int32 [n], ``ranks`` int64 [n], ``heap`` int64 [3 n]. Returns the slots behind the last
    word read and behind the last one written."""
    q = target
    i = first
    while i < last:
        w = word_at[i]
        n = 0
        while symbol[i] >= 0:
            ids[n] = symbol[i]
            n += 1
            i += 1
        i += 1
        if n <= _LONG_WORD:
            n = _merge_short(ids, n, base, ranks, pair_keys, pair_ranks)
        else:
            n = _merge_long(ids, n, base, ranks, heap, following, before, pair_keys, pair_ranks)
        if n > 1:
            for t in range(n):
                symbol[q] = ids[t]
                word_at[q] = w
                q += 1
            symbol[q] = -1
            word_at[q] = w
            q += 1
    return i, q
