"""Numba kernels of the cache of raw words for Unigram models: prepared pieces are looked up, and their tokens written while
the scores are added up in float32; see ``raw_unigram_kernels``.

Entries are those of ``word_cache_kernels``, but: ``short_table``: the first of four ids has the number of the limit in its bits from
27 on, ids that are not there are the one behind the last. A count above UNKNOWN_INLINE: as many tokens more, of which one with a
number in these bits (never the first) is the unknown token, and stands for so many characters. IN_RING, for all else: the place
in the rings, and the number of tokens, of pieces of the path (from bit 16) and of the limit (from bit 32). ``long_table``: the last integer has the same, and the length from bit
48. ``ring_tokens`` (int32) has tokens, and ``ring_scores`` (float32) at the same place the scores along the path.

``fused_id``: the unknown token, which is written once for any number of neighbours; -2 for a model in which there are none.
"""

import numpy as np

from shardpiece.intrinsics import bit_count, get, mask_of_range, put, same_bytes, store64
from shardpiece.kernel_cache import inlined_kernel, plain_kernel
from shardpiece.tokenizer.unigram_cut_kernels import (
    AT,
    BEGIN,
    DOCUMENT,
    ENDED,
    IS_INERT,
    KIND_BITS,
    KNOWN,
    MARKED,
)
from shardpiece.tokenizer.viterbi_kernels import LIMITS, RESET
from shardpiece.tokenizer.word_cache_kernels import (
    IN_RING,
    NO_BUCKET,
    STATE_BYTES,
    STATE_TOKENS,
    make_room,
    ring_place,
)

UNKNOWN_INLINE = 5
MOST_UNKNOWN = 31

_ZERO = np.uint64(0)
_NOTHING = np.float32(0)
_RESET = np.float32(RESET)
_BELOW_RESET = np.float32(0.99 * RESET)
_ROUNDING = np.float32(0.01)
"""More than an addition below RESET can be off."""
_LIMITS = LIMITS.astype(np.float32)
_ID_BITS = np.uint64(27)
_LOW_27 = np.uint64(0x7FFFFFF)
_IDS = np.uint64(0x07FFFFFF07FFFFFF)
_LEVEL = np.uint64(31)
_COUNT = np.uint64(0xFFFF)
_4, _16, _32, _48, _59, _60 = (np.uint64(n) for n in (4, 16, 32, 48, 59, 60))


@plain_kernel
def find_missing(count, lows, highs, buckets, short_table, long_table, missing):
    """The numbers of those of ``count`` prepared pieces that are not there into ``missing`` (int64 [count + 1]); returns how
    many there are."""
    found = np.int64(0)
    for j in range(count):
        bucket = get(buckets, j)
        put(missing, found, j)
        if bucket >= 0:
            lo, hi = get(lows, j), get(highs, j)
            front = (get(short_table, bucket) ^ lo) | ((get(short_table, bucket + 1) ^ hi) << _4)
            back = (get(short_table, bucket + 4) ^ lo) | ((get(short_table, bucket + 5) ^ hi) << _4)
            found += np.int64((front != _ZERO) & (back != _ZERO))
        elif bucket != NO_BUCKET:
            h = get(lows, j)
            found += np.int64((get(long_table, ~bucket) != h) & (get(long_table, ~bucket + 4) != h))
    return found


@inlined_kernel
def is_there(j, lows, highs, buckets, short_table):
    """Whether a short piece has an entry."""
    bucket = get(buckets, j)
    if bucket < 0:
        return False
    lo, hi = get(lows, j), get(highs, j)
    front = (get(short_table, bucket) ^ lo) | ((get(short_table, bucket + 1) ^ hi) << _4)
    back = (get(short_table, bucket + 4) ^ lo) | ((get(short_table, bucket + 5) ^ hi) << _4)
    return (front == _ZERO) | (back == _ZERO)


@inlined_kernel
def recall_ring(place, packed, ring_tokens, ring_scores, state, fused_id, begin, total, out, at):
    """(where the tokens end, the sum behind them), -1 when they have been written over."""
    size = np.int64(len(ring_tokens))
    if get(state, np.int64(STATE_TOKENS)) - place > size:
        return np.int64(-1), total
    base = place & (size - 1)
    n = np.int64(packed & _COUNT)
    if n > 0 and at > begin and get(ring_tokens, base) == fused_id and get(out, at - 1) == fused_id:
        at -= 1
    for k in range(n):
        put(out, at + k, get(ring_tokens, base + k))
    for k in range(np.int64((packed >> _16) & _COUNT)):
        total = total + get(ring_scores, base + k)
    return at + n, total


@inlined_kernel
def add_unknown(total, n, unknown_score):
    """The sum behind n unknown characters (float32)."""
    if abs(total) + np.float32(n + 1) * (abs(unknown_score) + _ROUNDING) < _BELOW_RESET:
        for _ in range(n):
            total = total + unknown_score
        return total
    for _ in range(n):
        if abs(total) > _RESET:
            total = _NOTHING
        total = total + unknown_score
    return total


@plain_kernel
def count_characters(data, start, stop):
    n = stop - start
    if start + 64 <= len(data) and n <= 64:
        inner = mask_of_range(data, start, np.uint8(0), np.uint8(0x80), np.uint8(0x40))
        return n - bit_count(inner << np.uint64(64 - n))
    for i in range(start, stop):
        n -= np.int64((get(data, i) & 0xC0) == 0x80)
    return n


@inlined_kernel
def recall_pieces(
    j, count, data, cursor, sums, starts, stops, last_pieces, lows, highs, buckets, scores, unknown_score, fused_id, mark_id,
    short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, out, token_ends,
):  # fmt: skip
    """Write the tokens of the prepared pieces from j on up to the first that is not there or not to be trusted; returns
    which. ``scores`` (float32 [ids + 1]), ``unknown_score`` (float32), ``mark_id``: the id of ▁."""
    at = cursor[AT]
    d = cursor[ENDED]
    begin = cursor[BEGIN]
    ended = cursor[DOCUMENT]
    total = np.float32(sums[0])
    size = np.int64(len(ring_bytes))
    known = False
    broken = False
    unknown = np.float32(unknown_score)
    while True:
        last = get(last_pieces, d) if d < ended else count
        while j < last:
            entry = get(buckets, j)
            if entry >= 0:
                lo, hi = get(lows, j), get(highs, j)
                front = (get(short_table, entry) ^ lo) | ((get(short_table, entry + 1) ^ hi) << _4)
                entry += 4 * np.int64(front != _ZERO)
                found = get(short_table, entry + 1)
                if ((get(short_table, entry) ^ lo) | ((found ^ hi) << _4)) != _ZERO:
                    broken = True
                    break
                n = np.int64(found >> _60)
                a, b = get(short_table, entry + 2), get(short_table, entry + 3)
                if n <= 4:
                    if not abs(total) < get(_LIMITS, np.int64((a >> _ID_BITS) & _LEVEL)):
                        known = True
                        break
                    store64(out, at, a & _IDS)
                    store64(out, at + 2, b)
                    at += n
                    total = total + get(scores, np.int64(a & _LOW_27))
                    total = total + get(scores, np.int64(a >> _32))
                    total = total + get(scores, np.int64(b & _LOW_27))
                    total = total + get(scores, np.int64(b >> _32))
                elif n == IN_RING:
                    if not abs(total) < get(_LIMITS, np.int64((b >> _32) & _LEVEL)):
                        known = True
                        break
                    written, total = recall_ring(
                        np.int64(a), b, ring_tokens, ring_scores, state, fused_id, begin, total, out, at
                    )
                    if written < 0:
                        broken = True
                        break
                    at = written
                else:
                    if not abs(total) < get(_LIMITS, np.int64((a >> _ID_BITS) & _LEVEL)):
                        known = True
                        break
                    n -= UNKNOWN_INLINE
                    store64(out, at, a & _IDS)
                    store64(out, at + 2, b & _IDS)
                    at += n
                    total = total + get(scores, np.int64(a & _LOW_27))
                    half = a >> _32
                    for k in range(1, n):
                        characters = np.int64(half >> _ID_BITS) & 31
                        if characters == 0:
                            total = total + get(scores, np.int64(half & _LOW_27))
                        else:
                            for _ in range(characters):
                                total = total + unknown
                        half = (b >> (_32 * np.uint64(k - 1))) & np.uint64(0xFFFFFFFF)
            elif entry == NO_BUCKET:
                packed = get(starts, j)
                if packed & IS_INERT == 0:
                    broken = True
                    break
                if abs(total) > _RESET:
                    total = _NOTHING
                if packed & MARKED:
                    put(out, at, np.int32(mark_id))
                    at += 1
                    total = total + get(scores, np.int64(mark_id))
                else:
                    at -= np.int64(at > begin and get(out, at - 1) == fused_id)
                put(out, at, np.int32(fused_id))
                at += 1
                total = add_unknown(total, count_characters(data, packed >> KIND_BITS, get(stops, j)), unknown)
            else:
                entry = ~entry
                entry += 4 * np.int64(get(long_table, entry) != get(lows, j))
                start = get(starts, j) >> KIND_BITS
                length = get(stops, j) - start
                packed = get(long_table, entry + 3)
                place = np.int64(get(long_table, entry + 1))
                if (
                    get(long_table, entry) != get(lows, j)
                    or np.int64(packed >> _48) != length
                    or get(state, np.int64(STATE_BYTES)) - place > size
                    or not same_bytes(data, start, ring_bytes, place & (size - 1), length)
                ):
                    broken = True
                    break
                if not abs(total) < get(_LIMITS, np.int64((packed >> _32) & _LEVEL)):
                    known = True
                    break
                written, total = recall_ring(
                    np.int64(get(long_table, entry + 2)), packed, ring_tokens, ring_scores, state, fused_id, begin, total,
                    out, at,
                )  # fmt: skip
                if written < 0:
                    broken = True
                    break
                at = written
            j += 1
        if known and abs(total) > _RESET:  # from which everything begins anew
            total = _NOTHING
            known = False
            continue
        if known or broken or d == ended:
            break
        put(token_ends, d, at)
        d += 1
        begin = at
        total = _NOTHING
    cursor[AT] = at
    cursor[ENDED] = d
    cursor[BEGIN] = begin
    cursor[KNOWN] = np.int64(known)  # in the cache, only not to be trusted here
    sums[0] = np.float64(total)
    return j


@inlined_kernel
def short_entry(lo, hi, bucket, short_table):
    """Where the entry of a short piece is in its bucket, or its front, where there is room now."""
    if ((get(short_table, bucket) ^ lo) | ((get(short_table, bucket + 1) ^ hi) << _4)) == _ZERO:
        return bucket
    if ((get(short_table, bucket + 4) ^ lo) | ((get(short_table, bucket + 5) ^ hi) << _4)) == _ZERO:
        return bucket + 4
    make_room(short_table, bucket)
    return bucket


@inlined_kernel
def enter_short(lo, hi, bucket, path, m, level, unk_id, empty, short_table):
    """Enter a short piece with its one to four pieces ``path``, the last one first, if they are known ones: else False."""
    first = np.int64(get(path, m - 1))
    second = np.int64(get(path, m - 2)) if m > 1 else empty
    third = np.int64(get(path, m - 3)) if m > 2 else empty
    fourth = np.int64(get(path, m - 4)) if m > 3 else empty
    if (first | second | third | fourth) < 0:
        return False
    if (first == unk_id) | (second == unk_id) | (third == unk_id) | (fourth == unk_id):
        return False
    entry = short_entry(lo, hi, bucket, short_table)
    put(short_table, entry, lo)
    put(short_table, entry + 1, hi | (np.uint64(m) << _60))
    put(short_table, entry + 2, np.uint64(first) | (level << _ID_BITS) | (np.uint64(second) << _32))
    put(short_table, entry + 3, np.uint64(third) | (np.uint64(fourth) << _32))
    return True


@inlined_kernel
def enter(
    j, data, starts, stops, lows, highs, buckets, path, m, level, fused_id, scores, unknown_score, out, at, n, short_table,
    long_table, ring_bytes, ring_tokens, ring_scores, state,
):  # fmt: skip
    """Enter piece j with its ``m`` pieces ``path``, the last one first, whose tokens are out[at:at + n]."""
    bucket = get(buckets, j)
    empty = np.uint64(len(scores) - 1)
    a, b = empty | (empty << _32), empty | (empty << _32)
    inline = bucket >= 0 and n <= 4
    count = n
    if fused_id < 0:
        for k in range(m):
            inline = inline and path[k] >= 0
    if inline:
        # Tokens from the path: the known ones, and how many characters the unknown ones stand for.
        k = m - 1
        slot = np.int64(0)
        while k >= 0 and inline:
            half = np.uint64(out[at + slot])
            if path[k] >= 0:
                inline = path[k] == out[at + slot] and path[k] != fused_id
                k -= 1
            else:
                characters = np.int64(0)
                while k >= 0 and path[k] < 0:
                    characters += 1
                    k -= 1
                inline = slot > 0 and characters <= MOST_UNKNOWN
                half |= np.uint64(characters) << _ID_BITS
                count = n + UNKNOWN_INLINE
            if slot == 0:
                a = (a & ~np.uint64(0xFFFFFFFF)) | half
            elif slot == 1:
                a = (a & np.uint64(0xFFFFFFFF)) | (half << _32)
            elif slot == 2:
                b = (b & ~np.uint64(0xFFFFFFFF)) | half
            else:
                b = (b & np.uint64(0xFFFFFFFF)) | (half << _32)
            slot += 1
            inline = inline and (slot < n or k < 0)
        a |= level << _ID_BITS
    if not inline:
        size = np.int64(len(ring_tokens))
        room = max(m, n)
        place = ring_place(state[STATE_TOKENS], room, size)
        base = place & (size - 1)
        for k in range(n):
            ring_tokens[base + k] = out[at + k]
        for k in range(m):
            piece = path[m - 1 - k]
            ring_scores[base + k] = np.float32(unknown_score) if piece < 0 else scores[piece]
        state[STATE_TOKENS] = place + room
        a = np.uint64(place)
        b = np.uint64(n) | (np.uint64(m) << _16) | (level << _32)
        count = IN_RING
    if bucket >= 0:
        lo, hi = get(lows, j), get(highs, j)
        entry = short_entry(lo, hi, bucket, short_table)
        put(short_table, entry, lo)
        put(short_table, entry + 1, hi | (np.uint64(count) << _60))
        put(short_table, entry + 2, a)
        put(short_table, entry + 3, b)
        return
    start = get(starts, j) >> KIND_BITS
    length = get(stops, j) - start
    size = np.int64(len(ring_bytes))
    place = ring_place(state[STATE_BYTES], length, size)
    base = place & (size - 1)
    for i in range(length):
        ring_bytes[base + i] = data[start + i]
    state[STATE_BYTES] = place + length
    entry = ~bucket
    if long_table[entry] != get(lows, j):
        make_room(long_table, entry)
    long_table[entry] = get(lows, j)
    long_table[entry + 1] = np.uint64(place)
    long_table[entry + 2] = a
    long_table[entry + 3] = b | (np.uint64(length) << _48)
