"""Numba kernels that find pieces of a vocabulary by their bytes, and the merges that a vocabulary implies.

A vocabulary is ``data`` (uint8), ``offsets`` (int64 [ids + 1]) and ``present`` (bool [ids]). ``slots`` (int32, a power of
two of them, at most half used): ids by the hash of their pieces, -1 = empty.
"""

import numpy as np

from shardpiece.intrinsics import hash_bytes, same_bytes
from shardpiece.kernel_cache import kernel, plain_kernel

_SEED = np.uint64(0)
UNRANKED = np.int64(2**62)


@plain_kernel
def find(text, start, end, data, offsets, slots):
    """The id of the piece text[start:end], -1 if there is none."""
    mask = len(slots) - 1
    q = np.int64(hash_bytes(text, start, end, _SEED)) & mask
    while True:
        i = np.int64(slots[q])
        if i < 0:
            return i
        if offsets[i + 1] - offsets[i] == end - start and same_bytes(text, start, data, offsets[i], end - start):
            return i
        q = (q + 1) & mask


@kernel
def index_pieces(data, offsets, present, slots):
    """Enter all pieces; returns the first id whose piece another id has already, or -1."""
    mask = len(slots) - 1
    for i in range(len(present)):
        if not present[i]:
            continue
        if find(data, offsets[i], offsets[i + 1], data, offsets, slots) >= 0:
            return np.int64(i)
        q = np.int64(hash_bytes(data, offsets[i], offsets[i + 1], _SEED)) & mask
        while slots[q] >= 0:
            q = (q + 1) & mask
        slots[q] = i
    return np.int64(-1)


@kernel
def join_pairs(data, offsets, present, slots, left, right, prefix, joined):
    """joined[r] (int32) = the id of piece left[r] followed by piece right[r] without the bytes ``prefix`` (uint8) that may
    begin it; -1 where that is no piece."""
    room = 0
    for i in range(len(present)):
        room = max(room, offsets[i + 1] - offsets[i])
    text = np.empty(2 * room + 8, np.uint8)
    p = len(prefix)
    for r in range(len(left)):
        a, b = left[r], right[r]
        if not (present[a] and present[b]):
            joined[r] = -1
            continue
        n = offsets[a + 1] - offsets[a]
        text[:n] = data[offsets[a] : offsets[a + 1]]
        start = offsets[b]
        if p > 0 and offsets[b + 1] - start >= p and same_bytes(data, start, prefix, 0, p):
            start += p
        m = offsets[b + 1] - start
        text[n : n + m] = data[start : offsets[b + 1]]
        joined[r] = find(text, 0, n + m, data, offsets, slots)


@kernel
def implied_merges(data, offsets, present, slots, priority, characters, left, right):
    """The merge by which each piece comes into being where any two neighbours merge whose text is a piece, the one of the
    least ``priority`` (int64 [ids], UNRANKED: never the result of a merge) first, leftmost first.

    ``characters``: whether symbols are UTF-8 characters, else bytes. left[i], right[i] (int32): the two pieces that piece i
    is last made of when it is the whole text, -1 for pieces of one symbol, and for those that merging does not lead to.
    Returns the first id with a symbol inside that is no piece itself, or -1.
    """
    longest = 0
    for i in range(len(present)):
        longest = max(longest, offsets[i + 1] - offsets[i])
    borders = np.empty(longest + 2, np.int64)
    ranks = np.empty(longest + 2, np.int64)
    lacking = np.int64(-1)
    for i in range(len(present)):
        left[i] = -1
        right[i] = -1
        if not present[i] or priority[i] == UNRANKED:
            continue
        start, end = offsets[i], offsets[i + 1]
        n = 0
        for at in range(start, end):
            if not characters or (data[at] & 0xC0) != 0x80:
                borders[n] = at
                n += 1
        borders[n] = end
        if n < 2:
            continue
        whole = True
        for j in range(n):
            if find(data, borders[j], borders[j + 1], data, offsets, slots) < 0:
                whole = False
        if not whole:
            if lacking < 0:
                lacking = np.int64(i)
            continue
        for j in range(n - 1):
            ranks[j] = UNRANKED
            t = find(data, borders[j], borders[j + 2], data, offsets, slots)
            if t >= 0:
                ranks[j] = priority[t]
        while n > 2:
            best = UNRANKED
            at = -1
            for j in range(n - 1):
                if ranks[j] < best:
                    best = ranks[j]
                    at = j
            if at < 0:
                break
            n -= 1
            for j in range(at + 1, n + 1):
                borders[j] = borders[j + 1]
            for j in range(at, n - 1):
                ranks[j] = ranks[j + 1]
            for j in range(max(at - 1, 0), min(at + 1, n - 1)):
                ranks[j] = UNRANKED
                t = find(data, borders[j], borders[j + 2], data, offsets, slots)
                if t >= 0:
                    ranks[j] = priority[t]
        if n == 2:
            left[i] = find(data, borders[0], borders[1], data, offsets, slots)
            right[i] = find(data, borders[1], borders[2], data, offsets, slots)
    return lacking
