"""Numba kernels of packed words: writing sorted rows, and merging many packed pieces into sorted rows again.

A row of a piece, after the one before it in order of word and group (all integers of more than a byte are LEB128):

    1 byte    high half: how many bytes of the word before this one begins with; low half: how many others follow.
              15 stands for 15 and more: then what there is beyond 15 comes next, first of the one, then of the other
    bytes     the others
    integer   number of the group among the piece's
    integer   count

A *run* is a chain of pieces in order, read by one cursor. Cursors are merged by a tree of losers (Knuth 1973, 5.4.1).
``state`` is int64 [runs, STATE_SIZE], one row of fields POSITION .. COUNT for each; ``heads`` uint64 [runs, 2], the first
16 bytes of its word as big-endian numbers, zeros behind its end; ``text`` uint8 holds each run's whole word at TEXT, with 16
bytes to spare.
"""

import numpy as np

from shardpiece.intrinsics import get, load64, put, same_bytes, trailing_zeros
from shardpiece.kernel_cache import plain_kernel
from shardpiece.words.sort_kernels import big_endian

MOST_PER_ROW = 24
"""Bytes of a row besides those of its word, at most."""

POSITION, END, PIECE, TEXT, SIZE, GROUP, COUNT, STATE_SIZE = range(8)

_FULL = 15
_END = -1
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)


@plain_kernel
def put_integer(out, at, value):
    """LEB128; returns the place behind it."""
    while value > 127:
        put(out, at, np.uint8((value & 127) | 128))
        value >>= 7
        at += 1
    put(out, at, np.uint8(value))
    return at + 1


@plain_kernel
def shared_beginning(words, a, b, n):
    """How many of n bytes at a and b are equal up to the first that are not."""
    i = 0
    while i + 8 <= n:
        different = load64(words, a + i) ^ load64(words, b + i)
        if different != 0:
            return i + trailing_zeros(different) // 8
        i += 8
    while i < n and get(words, a + i) == get(words, b + i):
        i += 1
    return i


@plain_kernel
def pack(words, offsets, groups, counts, names, out, at):
    """Write rows to ``out`` (uint8) from ``at`` on: ``words`` uint8, ``offsets`` int32 [n + 1], ``groups`` int32 [n], numbers
    that ``names`` (int32) turns into those of the piece, ``counts`` int64 [n]. ``out`` has room for len(words) +
    n * MOST_PER_ROW bytes. Returns (the place behind them, the length of the longest word)."""
    longest = 0
    before = np.int64(0)
    size_before = np.int64(0)
    for i in range(len(counts)):
        start = np.int64(get(offsets, i))
        size = np.int64(get(offsets, i + 1)) - start
        longest = max(longest, size)
        shared = shared_beginning(words, before, start, min(size_before, size))
        own = size - shared
        put(out, at, np.uint8((min(shared, _FULL) << 4) | min(own, _FULL)))
        at += 1
        if shared >= _FULL:
            at = put_integer(out, at, shared - _FULL)
        if own >= _FULL:
            at = put_integer(out, at, own - _FULL)
        for k in range(own):
            put(out, at + k, get(words, start + shared + k))
        at += own
        at = put_integer(out, at, np.int64(names[np.int64(get(groups, i))]))
        at = put_integer(out, at, get(counts, i))
        before = start
        size_before = size
    return at, longest


@plain_kernel
def advance(r, data, ends, following, name_starts, names, state, heads, text):
    """Read the next row of run r."""
    flat = state.reshape(-1)
    flat_heads = heads.reshape(-1)
    f = r * STATE_SIZE
    at = get(flat, f + POSITION)
    if at == get(flat, f + END):
        piece = following[get(flat, f + PIECE)]
        if piece < 0:
            put(flat, f + SIZE, _END)
            put(flat_heads, 2 * r, _LAST)
            put(flat_heads, 2 * r + 1, _LAST)
            return
        put(flat, f + PIECE, piece)
        at = ends[piece, 0]
        put(flat, f + END, ends[piece, 1])
    tag = np.int64(get(data, at))
    at += 1
    shared = tag >> 4
    own = tag & _FULL
    if shared == _FULL:
        shift = 0
        while True:
            byte = np.int64(get(data, at))
            at += 1
            shared += (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
    if own == _FULL:
        shift = 0
        while True:
            byte = np.int64(get(data, at))
            at += 1
            own += (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
    begin = get(flat, f + TEXT)
    for k in range(own):
        put(text, begin + shared + k, get(data, at + k))
    at += own
    size = shared + own
    put(flat, f + SIZE, size)
    if shared < 16:
        first = big_endian(load64(text, begin))
        second = np.uint64(0)
        if size < 8:
            unused = np.uint64(64 - 8 * size)
            first = (first >> unused) << unused
        elif size > 8:
            second = big_endian(load64(text, begin + 8))
            if size < 16:
                unused = np.uint64(128 - 8 * size)
                second = (second >> unused) << unused
        put(flat_heads, 2 * r, first)
        put(flat_heads, 2 * r + 1, second)
    group = np.int64(0)
    shift = 0
    while True:
        byte = np.int64(get(data, at))
        at += 1
        group |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    put(flat, f + GROUP, np.int64(names[name_starts[get(flat, f + PIECE)] + group]))
    count = np.int64(0)
    shift = 0
    while True:
        byte = np.int64(get(data, at))
        at += 1
        count |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    put(flat, f + COUNT, count)
    put(flat, f + POSITION, at)


@plain_kernel
def is_before(a, b, state, heads, text):
    """Whether run a is at a smaller word, or at the same word with a smaller group; one at its end never is."""
    flat = state.reshape(-1)
    flat_heads = heads.reshape(-1)
    head_a, head_b = get(flat_heads, 2 * a), get(flat_heads, 2 * b)
    if head_a != head_b:
        return head_a < head_b
    head_a, head_b = get(flat_heads, 2 * a + 1), get(flat_heads, 2 * b + 1)
    if head_a != head_b:
        return head_a < head_b
    size_a, size_b = get(flat, a * STATE_SIZE + SIZE), get(flat, b * STATE_SIZE + SIZE)
    if size_a < 0 or size_b < 0:
        return size_a >= 0
    start_a, start_b = get(flat, a * STATE_SIZE + TEXT), get(flat, b * STATE_SIZE + TEXT)
    least = min(size_a, size_b)
    k = 16
    while k < least:
        # Each word has 16 bytes behind it that belong to it alone.
        block_a, block_b = big_endian(load64(text, start_a + k)), big_endian(load64(text, start_b + k))
        if least - k < 8:
            unused = np.uint64(64 - 8 * (least - k))
            block_a, block_b = block_a >> unused, block_b >> unused
        if block_a != block_b:
            return block_a < block_b
        k += 8
    if size_a != size_b:
        return size_a < size_b
    return get(flat, a * STATE_SIZE + GROUP) < get(flat, b * STATE_SIZE + GROUP)


@plain_kernel
def start(data, ends, following, name_starts, names, state, heads, text, tree, winners):
    """Read the first row of every run and build the tree: ``tree`` int64 [runs], ``winners`` int64 [2 * runs] to work in."""
    n = len(state)
    for r in range(n):
        advance(r, data, ends, following, name_starts, names, state, heads, text)
        winners[n + r] = r
    for node in range(n - 1, 0, -1):
        a, b = winners[2 * node], winners[2 * node + 1]
        if is_before(b, a, state, heads, text):
            a, b = b, a
        winners[node] = a
        tree[node] = b
    tree[0] = winners[1]


@plain_kernel
def merge(data, ends, following, name_starts, names, state, heads, text, tree, words, offsets, groups, counts):
    """Take rows off the runs in order, equal ones added up, until they are at their end or an array is full: ``words`` uint8
    (with room for any one word), ``offsets`` int32 [rows + 1], ``groups`` int32, ``counts`` int64 [rows]. Returns the number
    of rows; 0 at the end.

    ``data``: uint8, all pieces and 8 bytes more; ``ends`` int64 [pieces, 2]: where each begins and ends; ``following`` int64:
    the next one of its run, or -1; ``names``: int32, for each piece from ``name_starts`` (int64) on, the place of its groups
    among all. A run's POSITION and END are equal and PIECE is the number of a piece whose ``following`` is its first.
    """
    flat = state.reshape(-1)
    flat_heads = heads.reshape(-1)
    n_runs = len(state)
    n = 0
    at = np.int64(0)
    begin = np.int64(0)
    head, second, size, group = np.uint64(0), np.uint64(0), np.int64(_END), np.int64(0)
    offsets[0] = 0
    while True:
        r = get(tree, 0)
        f = r * STATE_SIZE
        n_bytes = get(flat, f + SIZE)
        if n_bytes < 0:
            return n
        of_text = get(flat, f + TEXT)
        if (
            n_bytes == size
            and get(flat_heads, 2 * r) == head
            and get(flat_heads, 2 * r + 1) == second
            and get(flat, f + GROUP) == group
            and (size <= 16 or same_bytes(text, of_text, words, begin, size))
        ):
            put(counts, n - 1, get(counts, n - 1) + get(flat, f + COUNT))
        else:
            if n == len(counts) or at + n_bytes > len(words):
                return n
            head, second = get(flat_heads, 2 * r), get(flat_heads, 2 * r + 1)
            size, group = n_bytes, get(flat, f + GROUP)
            begin = at
            for k in range(size):
                put(words, at + k, get(text, of_text + k))
            at += size
            put(groups, n, np.int32(group))
            put(counts, n, get(flat, f + COUNT))
            n += 1
            put(offsets, n, np.int32(at))
        advance(r, data, ends, following, name_starts, names, state, heads, text)
        node = (n_runs + r) // 2
        while node > 0:
            other = get(tree, node)
            if is_before(other, r, state, heads, text):
                put(tree, node, r)
                r = other
            node //= 2
        put(tree, 0, r)
