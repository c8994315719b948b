"""Numba kernels of the word cache: the tokens of words that were encoded before, in bounded memory.

Two tables of buckets of two entries of 32 bytes, a cache line each. A new entry goes to the front of its bucket, moves the
one there to the back and drops the one behind: the table never fills, and never has to be emptied.

Short words, of at most SHORT bytes: ``short_table`` (uint64, a power of two of buckets of 8): the word's bytes in two
integers, the upper one with the length in bits 56-59 and the number of tokens in bits 60-63; then up to four ids of 32
bits. More tokens than four: count IN_RING, and the place in the ring and the number instead of ids.

Longer ones, of at most LONG bytes: ``long_table``: hash (never 0), place of the bytes in the byte ring, place of the tokens
in the token ring, length << 32 | number of tokens.

Rings (``ring_tokens`` int32, ``ring_bytes`` uint8, powers of two): places are counted on and on; what lies more than a
round back has been written over, and the entry that points there counts as none. Nothing lies across the end. ``state``
(int64): the places behind the last tokens and the last bytes, and counts for people.
"""

import numpy as np

from shardpiece.intrinsics import (
    MIX_1,
    MIX_2,
    MIX_3,
    copy_4,
    get,
    load64,
    load_key,
    prefetch,
    put,
    same_bytes,
    store64,
)
from shardpiece.kernel_cache import inlined_kernel, plain_kernel

SHORT = 15
LONG = 4096
IN_RING = 5
NO_BUCKET = np.int64(-(2**62))
STATE_TOKENS = 0
STATE_BYTES = 1
STATE_SHORT_MISSES = 2
STATE_LONG_MISSES = 3
STATE_UNCACHED = 4
STATE_SIZE = 5

_4, _8, _29, _32, _56, _60 = (np.uint64(n) for n in (4, 8, 29, 32, 56, 60))
_LOW_32 = np.int64(0xFFFFFFFF)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
# By length, the bytes of a word in its two integers.
_LOW_MASKS = np.array([2 ** (8 * min(n, 8)) - 1 for n in range(SHORT + 1)], np.uint64)
_HIGH_MASKS = np.array([2 ** (8 * max(n - 8, 0)) - 1 for n in range(SHORT + 1)], np.uint64)


@inlined_kernel
def short_key(data, start, n):
    """The two integers of a word of n <= SHORT bytes, count of tokens 0."""
    if start + 16 <= len(data):
        lo, hi = load64(data, start) & get(_LOW_MASKS, n), load64(data, start + 8) & get(_HIGH_MASKS, n)
    else:
        lo = load_key(data, start, min(n, 8))
        hi = load_key(data, start + 8, n - 8) if n > 8 else _ZERO
    return lo, hi | (np.uint64(n) << _56)


@inlined_kernel
def short_bucket(lo, hi, short_table):
    """Where the bucket of a key begins."""
    h = (lo * MIX_1) ^ (hi * MIX_2)
    h = (h ^ (h >> _32)) * MIX_3
    return np.int64(h >> _32) & np.int64(len(short_table) - 8)


@inlined_kernel
def long_hash(data, start, end):
    """The hash (uint64) of a longer word, never 0. As ``hash_bytes``, but that the last eight bytes may have been among those
    before: nothing is masked."""
    h = np.uint64(end - start) * MIX_3
    i = start
    while i + 8 < end:
        h = (h ^ load64(data, i)) * MIX_1
        h ^= h >> _32
        i += 8
    h = (h ^ load64(data, end - 8)) * MIX_2
    h = (h ^ (h >> _29)) * MIX_1
    h ^= h >> _32
    return h if h != _ZERO else _ONE


@inlined_kernel
def long_bucket(h, long_table):
    return np.int64(h >> _8) & np.int64(len(long_table) - 8)


@inlined_kernel
def ring_place(place, n, size):
    """Where n elements go behind ``place`` without lying across the end of a ring of ``size``."""
    return place + (size - (place & (size - 1))) if (place & (size - 1)) + n > size else place


@plain_kernel
def keep_tokens(out, at, n, ring_tokens, state):
    """Copy n tokens to the ring, four at a time; returns their place. ``out`` has three more."""
    size = np.int64(len(ring_tokens))
    room = (n + 3) & ~np.int64(3)
    place = ring_place(get(state, np.int64(STATE_TOKENS)), room, size)
    base = place & (size - 1)
    for i in range(0, n, 4):
        copy_4(ring_tokens, base + i, out, at + i)
    put(state, np.int64(STATE_TOKENS), place + room)
    return place


@inlined_kernel
def make_room(table, bucket):
    """Move the entry at the front of a bucket to the back."""
    for i in range(4):
        put(table, bucket + 4 + i, get(table, bucket + i))


@plain_kernel
def keep_short(lo, hi, bucket, out, at, n, short_table, ring_tokens, state):
    """Enter a short word with its n tokens out[at:at + n], or enter them into its place in the bucket."""
    entry = bucket
    if ((get(short_table, bucket) ^ lo) | ((get(short_table, bucket + 1) ^ hi) << _4)) != _ZERO:
        entry = bucket + 4
        if ((get(short_table, entry) ^ lo) | ((get(short_table, entry + 1) ^ hi) << _4)) != _ZERO:
            make_room(short_table, bucket)
            entry = bucket
    first, second = _ZERO, _ZERO
    if n <= 4:
        if n > 0:
            first = np.uint64(get(out, at))
        if n > 1:
            first |= np.uint64(get(out, at + 1)) << _32
        if n > 2:
            second = np.uint64(get(out, at + 2))
        if n > 3:
            second |= np.uint64(get(out, at + 3)) << _32
    else:
        first = np.uint64(keep_tokens(out, at, n, ring_tokens, state))
        second = np.uint64(n)
    put(short_table, entry, lo)
    put(short_table, entry + 1, hi | (np.uint64(min(n, IN_RING)) << _60))
    put(short_table, entry + 2, first)
    put(short_table, entry + 3, second)


@inlined_kernel
def copy_tokens(place, n, ring_tokens, state, out, at):
    """Copy n tokens from the ring to out[at:], where there is room for three more; False when they have been written over."""
    size = np.int64(len(ring_tokens))
    if get(state, np.int64(STATE_TOKENS)) - place > size:
        return False
    base = place & (size - 1)
    for i in range(0, n, 4):
        copy_4(out, at + i, ring_tokens, base + i)
    return True


@plain_kernel
def prepare_words(data, word_ends, first, last, start, lows, highs, buckets, short_table, long_table):
    """Make the keys of the words [first:last], the first of which begins at ``start``, and ask for their buckets.

    ``buckets`` (int64): where the bucket of each begins, for a longer word its complement, for one above LONG bytes NO_BUCKET;
    ``lows``, ``highs`` (uint64): the key, for a longer word the hash in ``lows``.
    """
    for w in range(first, last):
        end = get(word_ends, w)
        n = end - start
        i = w - first
        if n <= SHORT:
            lo, hi = short_key(data, start, n)
            bucket = short_bucket(lo, hi, short_table)
            put(lows, i, lo)
            put(highs, i, hi)
            put(buckets, i, bucket)
            prefetch(short_table, bucket)
        elif n <= LONG:
            h = long_hash(data, start, end)
            bucket = long_bucket(h, long_table)
            put(lows, i, h)
            put(buckets, i, ~bucket)
            prefetch(long_table, bucket)
        else:
            put(buckets, i, NO_BUCKET)
        start = end
    return start


@plain_kernel
def find_words(
    n, lows, highs, buckets, entries, short_table, long_table, ring_bytes, ring_tokens, state, missing, missing_long
):  # fmt: skip
    """Look the short ones of n prepared words up: ``entries`` (int64) receives where each is, if it does not move. One that is
    not there gets an entry without tokens, so that its next occurrence is, and a place in ``missing`` (int64 [n + 1]).
    For longer words that seem to be there, asks for their bytes and tokens; the others get a place in ``missing_long``. Returns
    the numbers of both."""
    found = np.int64(0)
    found_long = np.int64(0)
    # What lies before these places has been written over.
    first_byte = get(state, np.int64(STATE_BYTES)) - np.int64(len(ring_bytes))
    first_token = get(state, np.int64(STATE_TOKENS)) - np.int64(len(ring_tokens))
    for i in range(n):
        bucket = get(buckets, i)
        if bucket < 0:
            put(entries, i, np.int64(-1))
            if bucket != NO_BUCKET:
                h = get(lows, i)
                entry = ~bucket + 4 * np.int64(get(long_table, ~bucket) != h)
                of_bytes, of_tokens = np.int64(get(long_table, entry + 1)), np.int64(get(long_table, entry + 2))
                if get(long_table, entry) == h and of_bytes >= first_byte and of_tokens >= first_token:
                    prefetch(ring_bytes, of_bytes & np.int64(len(ring_bytes) - 1))
                    prefetch(ring_tokens, of_tokens & np.int64(len(ring_tokens) - 1))
                else:
                    put(missing_long, found_long, i)
                    found_long += 1
            continue
        lo, hi = get(lows, i), get(highs, i)
        front = (get(short_table, bucket) ^ lo) | ((get(short_table, bucket + 1) ^ hi) << _4)
        back = (get(short_table, bucket + 4) ^ lo) | ((get(short_table, bucket + 5) ^ hi) << _4)
        put(entries, i, bucket + 4 * np.int64(front != _ZERO))
        if (front != _ZERO) & (back != _ZERO):
            make_room(short_table, bucket)
            put(short_table, bucket, lo)
            put(short_table, bucket + 1, hi)
            put(entries, i, bucket)
            put(missing, found, i)
            found += 1
    return found, found_long


@plain_kernel
def recall_words(i, stop, lows, highs, entries, short_table, ring_tokens, state, out, at):
    """Write the tokens of the short words from i on to out[at:], where there is room for four more than they have, up to the
    first that is no more where it was found or is not short, or to ``stop``; returns where that is and the place behind the
    tokens."""
    while i < stop:
        entry = get(entries, i)
        if entry < 0:
            break
        found = get(short_table, entry + 1)
        if ((get(short_table, entry) ^ get(lows, i)) | ((found ^ get(highs, i)) << _4)) != _ZERO:
            break
        n = np.int64(found >> _60)
        first, second = get(short_table, entry + 2), get(short_table, entry + 3)
        if n <= 4:
            store64(out, at, first)
            store64(out, at + 2, second)
        else:
            n = np.int64(second)
            if not copy_tokens(np.int64(first), n, ring_tokens, state, out, at):
                break
        at += n
        i += 1
    return i, at


@plain_kernel
def keep_long(h, bucket, data, start, end, out, at, n, long_table, ring_bytes, ring_tokens, state):
    """Enter a longer word, but one without tokens."""
    if n == 0:
        return
    size = np.int64(len(ring_bytes))
    room = (end - start + 7) & ~np.int64(7)
    place = ring_place(get(state, np.int64(STATE_BYTES)), room, size)
    base = place & (size - 1)
    i = start
    while i + 8 <= end:
        store64(ring_bytes, base + i - start, load64(data, i))
        i += 8
    if i < end:
        store64(ring_bytes, base + i - start, load_key(data, i, end - i))
    put(state, np.int64(STATE_BYTES), place + room)
    make_room(long_table, bucket)
    put(long_table, bucket, h)
    put(long_table, bucket + 1, np.uint64(place))
    put(long_table, bucket + 2, np.uint64(keep_tokens(out, at, n, ring_tokens, state)))
    put(long_table, bucket + 3, np.uint64(((end - start) << 32) | n))


@plain_kernel
def recall_long(h, bucket, data, start, end, long_table, ring_bytes, ring_tokens, state, out, at):
    """Write the tokens of a longer word to out[at:]; returns their number, 0 for an unknown word."""
    size = np.int64(len(ring_bytes))
    for way in range(2):
        entry = bucket + 4 * way
        if get(long_table, entry) == h:
            place = np.int64(get(long_table, entry + 1))
            n = np.int64(get(long_table, entry + 3))
            if (
                n >> 32 == end - start
                and get(state, np.int64(STATE_BYTES)) - place <= size
                and same_bytes(data, start, ring_bytes, place & (size - 1), end - start)
                and copy_tokens(np.int64(get(long_table, entry + 2)), n & _LOW_32, ring_tokens, state, out, at)
            ):
                return n & _LOW_32
    return np.int64(0)
