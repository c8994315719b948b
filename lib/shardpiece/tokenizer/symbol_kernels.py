"""Numba kernels that turn a word into the symbols that merging begins with, and merge any number of them in m log m.

``pages`` (uint16) and ``places`` (int32 [rows * 256, 4]) give the id of a character, or of a byte, in the middle of a word
and as its first, last and only one (which differ in models that mark the beginning or the end of words); -1: not in the
vocabulary.
"""

import numpy as np

from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.text.normalization.character_kernels import decode
from shardpiece.tokenizer.pair_kernels import NO_RANK, pair_rank

FUSE_UNKNOWN = 1
DROP_UNKNOWN = 2
SINGLE_BYTES = 4
_LOW_32 = np.int64(0xFFFFFFFF)


@plain_kernel
def unknown_symbols(data, start, end, fallback, unk, flags, tokens, n):
    """What stands for the unknown character data[start:end], into tokens[n:]; returns n with it. ``fallback`` (int32 [256]):
    ids of the pieces of single bytes, or empty: then ``unk``, with FUSE_UNKNOWN once for neighbours, or nothing."""
    if len(fallback) > 0:
        for j in range(start, end):
            tokens[n] = fallback[data[j]]
            n += 1
    elif flags & DROP_UNKNOWN == 0 and (flags & FUSE_UNKNOWN == 0 or n == 0 or tokens[n - 1] != unk):
        tokens[n] = unk
        n += 1
    return n


@plain_kernel
def word_symbols(data, start, end, pages, places, fallback, unk, flags, tokens):
    """The ids of the symbols of data[start:end] into ``tokens``; returns their number. SINGLE_BYTES: symbols are bytes."""
    n = np.int64(0)
    i = start
    while i < end:
        if flags & SINGLE_BYTES:
            c, width = np.int64(data[i]), np.int64(1)
        else:
            c, width = decode(data, i)
        position = (1 if i == start else 0) + (2 if i + width >= end else 0)
        token = places[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF), position]
        if token >= 0:
            tokens[n] = token
            n += 1
        else:
            n = unknown_symbols(data, i, min(i + width, end), fallback, unk, flags, tokens, n)
        i += width
    return n


@plain_kernel
def push(heap, size, value):
    """Add to a binary min-heap of ``size`` int64 values."""
    x = size
    while x > 0:
        y = (x - 1) >> 1
        if heap[y] <= value:
            break
        heap[x] = heap[y]
        x = y
    heap[x] = value


@plain_kernel
def pop(heap, size):
    """Remove and return the least of ``size`` values."""
    top = heap[0]
    value = heap[size - 1]
    n = size - 1
    x = 0
    while True:
        y = 2 * x + 1
        if y >= n:
            break
        if y + 1 < n and heap[y + 1] < heap[y]:
            y += 1
        if heap[y] >= value:
            break
        heap[x] = heap[y]
        x = y
    heap[x] = value
    return top


@kernel
def merge_long(tokens, n, pairs, merged, out, at):
    """Merge tokens[:n] (int32) of any number into out[at:], lowest rank first, leftmost first, in m log m: a heap of (rank,
    position) over a linked list of symbols. Returns the number of tokens.

    Entries are int64 rank << 32 | position, so the least is the lowest rank, leftmost first. An entry is stale when
    the pair at its position has another rank by now.
    """
    ranks = np.full(n, NO_RANK, np.int64)
    following = np.arange(1, n + 1).astype(np.int32)
    before = np.arange(-1, n - 1).astype(np.int32)
    # Every merge removes one entry for good and adds at most two.
    heap = np.empty(3 * n, np.int64)
    size = 0
    for i in range(n - 1):
        ranks[i] = pair_rank(tokens[i], tokens[i + 1], pairs)
        if ranks[i] != NO_RANK:
            push(heap, size, (ranks[i] << 32) | np.int64(i))
            size += 1
    while size > 0:
        entry = pop(heap, size)
        size -= 1
        i = entry & _LOW_32
        rank = entry >> 32
        if ranks[i] != rank:
            continue
        j = following[i]
        tokens[i] = merged[rank]
        following[i] = following[j]
        ranks[j] = NO_RANK
        tokens[j] = -1
        if following[i] < n:
            before[following[i]] = i
            ranks[i] = pair_rank(tokens[i], tokens[following[i]], pairs)
            if ranks[i] != NO_RANK:
                push(heap, size, (ranks[i] << 32) | np.int64(i))
                size += 1
        else:
            ranks[i] = NO_RANK
        h = before[i]
        if h >= 0:
            ranks[h] = pair_rank(tokens[h], tokens[i], pairs)
            if ranks[h] != NO_RANK:
                push(heap, size, (ranks[h] << 32) | np.int64(h))
                size += 1
    i = 0
    count = 0
    while i < n:
        out[at + count] = tokens[i]
        count += 1
        i = following[i]
    return count


@kernel
def piece_symbols(data, offsets, pages, places, symbols, starts):
    """The characters of each piece as ids, those of piece t in symbols[starts[t]:starts[t + 1]] (int32; starts int64), none
    for a piece with a character that is no token. Returns the number of all."""
    n = np.int64(0)
    for t in range(len(offsets) - 1):
        starts[t] = n
        i = offsets[t]
        m = np.int64(0)
        while i < offsets[t + 1]:
            c, width = decode(data, i)
            token = places[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF), 0]
            if token < 0:
                m = 0
                break
            symbols[n + m] = token
            m += 1
            i += width
        n += m
    starts[len(offsets) - 1] = n
    return n
