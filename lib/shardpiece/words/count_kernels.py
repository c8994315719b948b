"""Numba kernels of the word counter: an open-addressing hash table from (group, word bytes) to a count.

``entries`` (uint64 [slots, 4], 32 bytes each, so that one cache line answers for a word): the first eight bytes of the
word; the next seven, with the word's length in the topmost byte (0: the entry is empty); the count; group << 32.
A word of more than 15 bytes has its hash in the first place, LONG | length in the second, and the number of the UNIT
in ``arena`` where its bytes begin in the lower half of the last.
"""

import numpy as np

from shardpiece.intrinsics import MIX_1, MIX_2, get, hash_bytes, load64, load_key, prefetch, put, same_bytes
from shardpiece.kernel_cache import plain_kernel

STATE_WORDS = 0
STATE_NEXT = 1
STATE_UNITS = 2
STATE_LONG_WORDS = 3
STATE_LONG_BYTES = 4
STATE_SIZE = 5

ALL_COUNTED = 0
ENTRIES_FULL = 1
ARENA_FULL = 2

UNIT = 16
BLOCK = 256
"""Words whose entries are fetched ahead together: ``keys`` is uint64 [BLOCK, 4]."""

_SHORT = 15
_LENGTH = np.uint64(56)
LONG = np.uint64(0xFF << 56)
LENGTH_OF_LONG = np.uint64((1 << 56) - 1)
_TOO_LONG = np.uint64(0)
_32 = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)
_FIRST_MASK = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(16)], np.uint64)
_SECOND_MASK = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(16)], np.uint64)


@plain_kernel
def slot_of(first, second, group, slots):
    """Where to look for a key; the same on every machine and in every run."""
    h = (first ^ (second * MIX_1) ^ (group * MIX_2)) * MIX_2
    h = (h ^ (h >> _32)) * MIX_1
    return np.int64(((h >> _32) * slots) >> _32)


@plain_kernel
def count_words(
    data, word_ends, document_ends, document_groups, first_byte, max_word_bytes, entries, room, arena, keys, state
):
    """Count from word state[STATE_NEXT] on. Returns ALL_COUNTED; or ENTRIES_FULL (``room`` of them are in use) or
    ARENA_FULL, with state[STATE_NEXT] at the word to resume from.

    Words of more than ``max_word_bytes`` are not counted but added up in STATE_LONG_WORDS and STATE_LONG_BYTES.
    """
    flat = entries.reshape(-1)
    flat_keys = keys.reshape(-1)
    slots = np.uint64(len(entries))
    w = state[STATE_NEXT]
    start = word_ends[w - 1] if w > 0 else first_byte
    d = document_of(document_ends, w)
    group = np.uint64(0)
    known = -1
    safe = len(data) - 16
    while w < len(word_ends):
        # Keys and places of a block of words.
        n_block = min(BLOCK, len(word_ends) - w)
        for i in range(n_block):
            while w + i >= document_ends[d]:
                d += 1
            if d != known:
                known = d
                group = np.uint64(document_groups[d])
            end = get(word_ends, w + i)
            n = end - start
            if n <= _SHORT:
                if start <= safe:
                    first = load64(data, start) & _FIRST_MASK[n]
                    second = load64(data, start + 8) & _SECOND_MASK[n]
                else:
                    first = load_key(data, start, min(n, 8))
                    second = load_key(data, start + 8, n - 8) if n > 8 else np.uint64(0)
                second |= np.uint64(n) << _LENGTH
            elif n <= max_word_bytes:
                first = hash_bytes(data, start, end, np.uint64(0))
                second = LONG | np.uint64(n)
            else:
                first = np.uint64(n)
                second = _TOO_LONG
            q = slot_of(first, second, group, slots)
            prefetch(flat, 4 * q)
            put(flat_keys, 4 * i, first)
            put(flat_keys, 4 * i + 1, second)
            put(flat_keys, 4 * i + 2, np.uint64(q))
            put(flat_keys, 4 * i + 3, group << _32)
            start = end
        for i in range(n_block):
            first = get(flat_keys, 4 * i)
            second = get(flat_keys, 4 * i + 1)
            q = np.int64(get(flat_keys, 4 * i + 2))
            of_group = get(flat_keys, 4 * i + 3)
            if second == _TOO_LONG:
                state[STATE_LONG_WORDS] += 1
                state[STATE_LONG_BYTES] += np.int64(first)
                continue
            while True:
                a = get(flat, 4 * q)
                b = get(flat, 4 * q + 1)
                last = get(flat, 4 * q + 3)
                if ((a ^ first) | (b ^ second) | ((last ^ of_group) >> _32)) == 0 and (
                    second < LONG
                    or same_bytes(
                        data,
                        word_ends[w + i] - np.int64(second & LENGTH_OF_LONG),
                        arena,
                        np.int64(last & _LOW_32) * UNIT,
                        np.int64(second & LENGTH_OF_LONG),
                    )
                ):
                    put(flat, 4 * q + 2, get(flat, 4 * q + 2) + np.uint64(1))
                    break
                if b == 0:
                    units = np.int64(0)
                    n = np.int64(second & LENGTH_OF_LONG)
                    if second >= LONG:
                        units = (n + UNIT - 1) // UNIT
                    full = ENTRIES_FULL if state[STATE_WORDS] >= room else ALL_COUNTED
                    if (state[STATE_UNITS] + units) * UNIT > len(arena):
                        full = ARENA_FULL
                    if full != ALL_COUNTED:
                        state[STATE_NEXT] = w + i
                        return full
                    if second >= LONG:
                        at = state[STATE_UNITS] * UNIT
                        begin = word_ends[w + i] - n
                        for k in range(n):
                            arena[at + k] = data[begin + k]
                        of_group |= np.uint64(state[STATE_UNITS])
                        state[STATE_UNITS] += units
                    put(flat, 4 * q, first)
                    put(flat, 4 * q + 1, second)
                    put(flat, 4 * q + 2, np.uint64(1))
                    put(flat, 4 * q + 3, of_group)
                    state[STATE_WORDS] += 1
                    break
                q += 1
                if q == len(entries):
                    q = 0
        w += n_block
    state[STATE_NEXT] = w
    return ALL_COUNTED


@plain_kernel
def document_of(document_ends, word):
    """Number of the document that has the word."""
    low = 0
    high = len(document_ends)
    while low < high:
        middle = (low + high) // 2
        if document_ends[middle] <= word:
            low = middle + 1
        else:
            high = middle
    return low


@plain_kernel
def move_entries(entries, larger):
    """Enter all words into an empty table."""
    for i in range(len(entries)):
        second = entries[i, 1]
        if second != 0:
            q = slot_of(entries[i, 0], second, entries[i, 3] >> _32, np.uint64(len(larger)))
            while larger[q, 1] != 0:
                q += 1
                if q == len(larger):
                    q = 0
            for k in range(4):
                larger[q, k] = entries[i, k]


@plain_kernel
def compact(entries):
    """Move the entries in use to the front; returns how many there are. What lies behind them is of no use any more."""
    flat = entries.reshape(-1)
    n = 0
    for i in range(len(entries)):
        if get(flat, 4 * i + 1) != 0:
            for k in range(4):
                put(flat, 4 * n + k, get(flat, 4 * i + k))
            n += 1
    return n


@plain_kernel
def size_of(second):
    """Length of the word whose entry has ``second`` in its second place."""
    return np.int64(second & LENGTH_OF_LONG) if second >= LONG else np.int64(second >> _LENGTH)
