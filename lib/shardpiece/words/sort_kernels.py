"""Numba kernels that put the entries of the word counter into the order of word tables: by word, then by group.

A word is compared in blocks of eight bytes, read as big-endian integers, zeros behind its end. Blocks that are equal leave
three cases: one word ends in the block and the other goes on (it is the other's beginning, and smaller), both end in it
(the shorter one is smaller), or both go on (the next block decides).
"""

import numpy as np

from shardpiece.intrinsics import get, load64, prefetch, put
from shardpiece.kernel_cache import plain_kernel
from shardpiece.words.count_kernels import LENGTH_OF_LONG, LONG, UNIT, size_of

STACK_COLUMNS = 4

_SMALL = 24
_AHEAD = 8
_8 = np.uint64(8)
_16 = np.uint64(16)
_32 = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)
_255 = np.uint64(255)
_BYTES = np.uint64(0x00FF00FF00FF00FF)
_PAIRS = np.uint64(0x0000FFFF0000FFFF)
_SECOND_OF_SHORT = np.uint64((1 << 56) - 1)


@plain_kernel
def big_endian(value):
    """The bytes of a uint64 in reverse order."""
    value = ((value >> _8) & _BYTES) | ((value & _BYTES) << _8)
    value = ((value >> _16) & _PAIRS) | ((value & _PAIRS) << _16)
    return (value >> _32) | (value << _32)


@plain_kernel
def block(flat, e, arena, level):
    """Bytes 8 level to 8 level + 7 of a word that has some of them. ``flat``: the entries as one dimension."""
    second = get(flat, 4 * e + 1)
    if second < LONG:
        if level == 0:
            return big_endian(get(flat, 4 * e))
        return big_endian(second & _SECOND_OF_SHORT)
    value = big_endian(load64(arena, np.int64(get(flat, 4 * e + 3) & _LOW_32) * UNIT + 8 * level))
    left = np.int64(second & LENGTH_OF_LONG) - 8 * level
    if left < 8:
        unused = np.uint64(64 - 8 * left)
        value = (value >> unused) << unused
    return value


@plain_kernel
def is_less(flat, a, b, arena, ranks, level):
    """Whether entry a comes before entry b, where all blocks before ``level`` are equal."""
    size_a, size_b = size_of(get(flat, 4 * a + 1)), size_of(get(flat, 4 * b + 1))
    while 8 * level < size_a and 8 * level < size_b:
        block_a, block_b = block(flat, a, arena, level), block(flat, b, arena, level)
        if block_a != block_b:
            return block_a < block_b
        level += 1
    if size_a != size_b:
        return size_a < size_b
    return ranks[np.int64(get(flat, 4 * a + 3) >> _32)] < ranks[np.int64(get(flat, 4 * b + 3) >> _32)]


@plain_kernel
def sort_few(flat, arena, ranks, keys, ids, first, last, level):
    """Insertion sort of ids[first:last], whose blocks of ``level`` are in ``keys``."""
    for i in range(first + 1, last):
        key, e = get(keys, i), get(ids, i)
        j = i
        while j > first:
            before = get(keys, j - 1)
            if before < key or (
                before == key and not is_less(flat, np.int64(e), np.int64(get(ids, j - 1)), arena, ranks, level + 1)
            ):
                break
            put(keys, j, before)
            put(ids, j, get(ids, j - 1))
            j -= 1
        put(keys, j, key)
        put(ids, j, e)


@plain_kernel
def sort_entries(entries, n, arena, ranks, keys, ids, other_keys, other_ids, digits, stack):
    """Fill ``ids`` (uint32 [n]) with the numbers of the first ``n`` entries in order of word and ``ranks`` (int32, of each
    group): a radix sort from the first byte on, where few are left an insertion sort.

    Work space: ``keys`` and ``other_keys`` uint64 [n], ``other_ids`` uint32 [n], ``digits`` int64 [257], ``stack`` int64
    [n // 12 + 8, STACK_COLUMNS].
    """
    flat = entries.reshape(-1)
    for i in range(n):
        put(keys, i, block(flat, i, arena, 0))
        put(ids, i, np.uint32(i))
    # What is on the stack has more than _SMALL rows, and no row is there twice.
    top = 0
    if n > _SMALL:
        top = push(stack, 0, 0, n, 0, 56)
    else:
        sort_few(flat, arena, ranks, keys, ids, 0, n, 0)
    while top > 0:
        top -= 1
        first, last, level, shift = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        if shift < 0:
            if level < 0:
                continue
            # Equal blocks. Words that end here come first, in order of length and group: no two of them are the same.
            middle = first
            for i in range(first, last):
                e = get(ids, i)
                if size_of(get(flat, 4 * np.int64(e) + 1)) <= 8 * (level + 1):
                    put(ids, i, get(ids, middle))
                    put(ids, middle, e)
                    middle += 1
            for i in range(first, middle):
                e = np.int64(get(ids, i))
                rank = ranks[np.int64(get(flat, 4 * e + 3) >> _32)]
                put(keys, i, (np.uint64(size_of(get(flat, 4 * e + 1))) << _32) | np.uint64(rank))
            for i in range(middle, last):
                put(keys, i, block(flat, np.int64(get(ids, i)), arena, level + 1))
            if middle - first > _SMALL:
                top = push(stack, top, first, middle, -1, 56)
            else:
                sort_few(flat, arena, ranks, keys, ids, first, middle, -1)
            if last - middle > _SMALL:
                top = push(stack, top, middle, last, level + 1, 56)
            else:
                sort_few(flat, arena, ranks, keys, ids, middle, last, level + 1)
            continue
        by = np.uint64(shift)
        for d in range(257):
            put(digits, d, 0)
        for i in range(first, last):
            d = np.int64((get(keys, i) >> by) & _255)
            put(digits, d + 1, get(digits, d + 1) + 1)
        if get(digits, np.int64((get(keys, first) >> by) & _255) + 1) == last - first:
            top = push(stack, top, first, last, level, shift - 8)
            continue
        for d in range(256):
            put(digits, d + 1, get(digits, d + 1) + get(digits, d))
        for i in range(first, last):
            key = get(keys, i)
            d = np.int64((key >> by) & _255)
            to = first + get(digits, d)
            put(digits, d, get(digits, d) + 1)
            put(other_keys, to, key)
            put(other_ids, to, get(ids, i))
        for i in range(first, last):
            put(keys, i, get(other_keys, i))
            put(ids, i, get(other_ids, i))
        a = first
        for d in range(256):
            b = first + get(digits, d)
            if b - a > _SMALL:
                top = push(stack, top, a, b, level, shift - 8)
            elif b - a > 1:
                sort_few(flat, arena, ranks, keys, ids, a, b, level)
            a = b


@plain_kernel
def push(stack, top, first, last, level, shift):
    stack[top, 0] = first
    stack[top, 1] = last
    stack[top, 2] = level
    stack[top, 3] = shift
    return top + 1


@plain_kernel
def first_not_below(entries, ids, arena, word):
    """The first place in the sorted ``ids`` whose word is not smaller than ``word`` (uint8)."""
    flat = entries.reshape(-1)
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if is_below(flat, np.int64(ids[middle]), arena, word):
            low = middle + 1
        else:
            high = middle
    return low


@plain_kernel
def is_below(flat, e, arena, word):
    """Whether the word of entry e is smaller than ``word``."""
    size = size_of(get(flat, 4 * e + 1))
    for i in range(min(size, len(word))):
        byte = np.int64((block(flat, e, arena, i // 8) >> np.uint64(56 - 8 * (i % 8))) & _255)
        if byte != word[i]:
            return byte < word[i]
    return size < len(word)


@plain_kernel
def take_sorted(entries, ids, first, last, arena, offsets, words, groups, counts):
    """Copy words ids[first] to ids[last - 1] out until an array is full: ``offsets`` int32 [rows + 1] into ``words`` uint8,
    ``groups`` int32 and ``counts`` int64 [rows]. Returns the place to go on from. ``words`` has room for any one word."""
    flat = entries.reshape(-1)
    last = min(last, first + len(counts))
    at = np.int64(0)
    offsets[0] = 0
    for place in range(first, last):
        if place + _AHEAD < last:
            prefetch(flat, 4 * np.int64(get(ids, place + _AHEAD)))
        e = np.int64(get(ids, place))
        second = get(flat, 4 * e + 1)
        n = size_of(second)
        if at + n > len(words):
            return place
        group = get(flat, 4 * e + 3)
        if second >= LONG:
            begin = np.int64(group & _LOW_32) * UNIT
            for k in range(n):
                put(words, at + k, get(arena, begin + k))
        else:
            key = get(flat, 4 * e)
            for k in range(min(n, 8)):
                put(words, at + k, np.uint8(key & _255))
                key >>= _8
            for k in range(8, n):
                put(words, at + k, np.uint8(second & _255))
                second >>= _8
        at += n
        row = place - first
        put(groups, row, np.int32(group >> _32))
        put(counts, row, np.int64(get(flat, 4 * e + 2)))
        put(offsets, row + 1, np.int32(at))
    return last
