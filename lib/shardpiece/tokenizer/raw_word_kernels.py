"""Numba kernels of the cache of raw words, see ``raw_words``: documents cut at ASCII spaces as they are, and the pieces looked
up before anything is done to them.

Pieces come in blocks: first all keys of a block are made and their places in the cache asked for, then the pieces are looked up,
so that the cache's lines have come by then. Tables, rings and ``state``: see ``word_cache_kernels``.

``data`` (uint8), ``offsets`` (int64): the documents. ``squeeze``: pieces are what stands between spaces (and, with ``lines``,
tabs and line feeds), else they begin with a run of spaces (or a line feed), the first of which is no part of their key, and
the first piece of a document, which may be empty, with the document. ``cursor``: int64 [CURSOR], all zeros but PLACE,
offsets[0]. A document that holds ▁ is one piece, WHOLE, which is not looked up.
"""

import numpy as np

from shardpiece.intrinsics import get, mask_of_range, prefetch, put, store64, trailing_zeros
from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.tokenizer.word_cache_kernels import (
    NO_BUCKET,
    SHORT,
    copy_tokens,
    keep_long,
    keep_short,
    long_bucket,
    long_hash,
    recall_long,
    short_bucket,
    short_key,
)

BLOCK = 512
# Of 64 bytes each may begin a piece, and one may end behind them.
ROOM = BLOCK + 66
LONGEST = 64
"""Bytes of a piece that is looked up."""
MOST = 128
"""Tokens of a piece that is entered."""
EMPTY = NO_BUCKET + 1
WHOLE = NO_BUCKET + 2

DOCUMENT, PLACE, START, CARRY, AT, ENDED, DONE = range(7)
CURSOR = 8

_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_4, _60, _63 = np.uint64(4), np.uint64(60), np.uint64(63)
_NEWLINE = np.uint8(0x0A)


@plain_kernel
def has_mark(data, start, end):
    """Whether data[start:end] holds ▁."""
    i = np.int64(start)
    while i + 66 <= len(data) and i + 2 < end:
        found = mask_of_range(data, i + 1, np.uint8(0), np.uint8(0x96), np.uint8(1))
        if found != _ZERO:
            found &= mask_of_range(data, i, np.uint8(0), np.uint8(0xE2), np.uint8(1))
            found &= mask_of_range(data, i + 2, np.uint8(0), np.uint8(0x81), np.uint8(1))
            if found != _ZERO:
                return i + trailing_zeros(found) + 2 < end
        i += 64
    while i + 2 < end:
        if data[i] == 0xE2 and data[i + 1] == 0x96 and data[i + 2] == 0x81:
            return True
        i += 1
    return False


@plain_kernel
def prepare(data, start, stop, d, j, starts, stops, owners, lows, highs, buckets, short_table, long_table):
    """Piece j of the block: data[start:stop] of document d, its key, and its bucket, which is asked for. Returns j + 1."""
    put(starts, j, start)
    put(stops, j, stop)
    put(owners, j, d)
    n = stop - start
    if n <= SHORT:
        if n == 0:
            put(buckets, j, EMPTY)
        else:
            lo, hi = short_key(data, start, n)
            bucket = short_bucket(lo, hi, short_table)
            put(lows, j, lo)
            put(highs, j, hi)
            put(buckets, j, bucket)
            prefetch(short_table, bucket)
    elif n <= LONGEST:
        h = long_hash(data, start, stop)
        bucket = long_bucket(h, long_table)
        put(lows, j, h)
        put(buckets, j, ~bucket)
        prefetch(long_table, bucket)
    else:
        put(buckets, j, NO_BUCKET)
    return j + 1


@plain_kernel
def cut_block(
    data, offsets, cursor, squeeze, lines, starts, stops, owners, lows, highs, buckets, short_table, long_table
):
    """Prepare the next pieces, about BLOCK of them; returns how many, less only at the end of the last document."""
    n_documents = np.int64(len(offsets)) - 1
    d = cursor[DOCUMENT]
    i = cursor[PLACE]
    start = cursor[START]
    carry = np.uint64(cursor[CARRY])
    first_break = np.uint8(9) if squeeze else _NEWLINE
    breaks = np.uint8(2) if squeeze else np.uint8(1)
    if not lines:
        breaks = np.uint8(0)
    j = np.int64(0)
    while d < n_documents and j < BLOCK:
        end = np.int64(offsets[d + 1])
        begins = i == offsets[d]
        if begins:
            carry = _ZERO
            start = np.int64(-1)
            if i == end:
                d += 1
                continue
            if has_mark(data, i, end):
                put(starts, j, i)
                put(stops, j, end)
                put(owners, j, d)
                put(buckets, j, WHOLE)
                j += 1
                d += 1
                i = end
                continue
            if not squeeze:
                start = i
        width = min(np.int64(64), end - i)
        if i + 64 <= len(data):
            spaces = mask_of_range(data, i, np.uint8(0), np.uint8(0x20), np.uint8(1))
            broken = mask_of_range(data, i, np.uint8(0), first_break, breaks)
        else:
            spaces = _ZERO
            broken = _ZERO
            for k in range(width):
                b = data[i + k]
                if b == 0x20:
                    spaces |= _ONE << np.uint64(k)
                elif np.uint8(b - first_break) < breaks:
                    broken |= _ONE << np.uint64(k)
        valid = ~_ZERO if width == 64 else (_ONE << np.uint64(width)) - _ONE
        if squeeze:
            inside = ~(spaces | broken) & valid
            edges = (inside ^ ((inside << _ONE) | carry)) & valid
            carry = inside >> _63
            while edges != _ZERO:
                k = i + trailing_zeros(edges)
                edges &= edges - _ONE
                if start < 0:
                    start = k
                else:
                    j = prepare(
                        data, start, k, d, j, starts, stops, owners, lows, highs, buckets, short_table, long_table
                    )
                    start = np.int64(-1)
        else:
            spaces &= valid
            edges = (spaces & ~((spaces << _ONE) | carry)) | (broken & valid)
            carry = spaces >> _63
            if begins:
                edges &= ~(spaces & _ONE)
            while edges != _ZERO:
                k = i + trailing_zeros(edges)
                edges &= edges - _ONE
                j = prepare(data, start, k, d, j, starts, stops, owners, lows, highs, buckets, short_table, long_table)
                start = k + np.int64(get(data, k) == 0x20)
        i += width
        if i == end:
            if start >= 0:
                j = prepare(
                    data, start, end, d, j, starts, stops, owners, lows, highs, buckets, short_table, long_table
                )
            d += 1
    cursor[DOCUMENT] = d
    cursor[PLACE] = i
    cursor[START] = start
    cursor[CARRY] = np.int64(carry)
    cursor[DONE] = np.int64(d == n_documents)
    return j


@plain_kernel
def recall_block(
    count, data, cursor, starts, stops, owners, lows, highs, buckets, short_table, long_table, ring_bytes, ring_tokens, state,
    mark, out, token_ends, hole_ends, holes, n_holes,
):  # fmt: skip
    """Write the tokens of ``count`` prepared pieces that are there; the others become holes. Returns the number of holes."""
    at = cursor[AT]
    d = cursor[ENDED]
    for j in range(count):
        while d < get(owners, j):
            token_ends[d] = at
            hole_ends[d] = n_holes
            d += 1
        bucket = get(buckets, j)
        if bucket >= 0:
            lo, hi = get(lows, j), get(highs, j)
            found = get(short_table, bucket + 1)
            missing = ((get(short_table, bucket) ^ lo) | ((found ^ hi) << _4)) != _ZERO
            if missing:
                bucket += 4
                found = get(short_table, bucket + 1)
                missing = ((get(short_table, bucket) ^ lo) | ((found ^ hi) << _4)) != _ZERO
            if not missing:
                n = np.int64(found >> _60)
                first, second = get(short_table, bucket + 2), get(short_table, bucket + 3)
                if n <= 4:
                    store64(out, at, first)
                    store64(out, at + 2, second)
                    at += n
                    continue
                n = np.int64(second)
                if copy_tokens(np.int64(first), n, ring_tokens, state, out, at):
                    at += n
                    continue
        elif bucket == EMPTY:
            for k in range(len(mark)):
                out[at + k] = mark[k]
            at += len(mark)
            continue
        elif bucket > WHOLE:
            n = recall_long(
                get(lows, j), ~bucket, data, get(starts, j), get(stops, j), long_table, ring_bytes, ring_tokens, state, out, at
            )  # fmt: skip
            if n > 0:
                at += n
                continue
        holes[0, n_holes] = starts[j]
        holes[1, n_holes] = stops[j]
        holes[2, n_holes] = at
        holes[3, n_holes] = np.int64(buckets[j] == WHOLE)
        n_holes += 1
    cursor[AT] = at
    cursor[ENDED] = d
    return n_holes


@kernel
def recall_round(
    data, offsets, cursor, squeeze, lines, short_table, long_table, ring_bytes, ring_tokens, state, mark, most_missing, out,
    token_ends, hole_ends, holes,
):  # fmt: skip
    """Go on from ``cursor`` until the pieces that are not there have ``most_missing`` bytes, or are as many as ``holes`` (int64
    [4, n]: start, stop, place in ``out``, whether WHOLE) has room for, or ``out`` is full: it must have room for ROOM * MOST
    tokens. ``token_ends``, ``hole_ends``: int64 [documents], the tokens and the holes of this round before the end of each
    document that ended. ``mark``: int32, the tokens of an empty piece. Returns the number of holes."""
    starts = np.empty(ROOM, np.int64)
    stops = np.empty(ROOM, np.int64)
    owners = np.empty(ROOM, np.int64)
    lows = np.empty(ROOM, np.uint64)
    highs = np.empty(ROOM, np.uint64)
    buckets = np.empty(ROOM, np.int64)
    cursor[AT] = 0
    n_holes = np.int64(0)
    missing = np.int64(0)
    while (
        cursor[DONE] == 0
        and missing < most_missing
        and n_holes + ROOM <= holes.shape[1]
        and cursor[AT] + ROOM * MOST <= len(out)
    ):
        count = cut_block(
            data, offsets, cursor, squeeze, lines, starts, stops, owners, lows, highs, buckets, short_table, long_table
        )
        before = n_holes
        n_holes = recall_block(
            count, data, cursor, starts, stops, owners, lows, highs, buckets, short_table, long_table, ring_bytes, ring_tokens,
            state, mark, out, token_ends, hole_ends, holes, n_holes,
        )  # fmt: skip
        for h in range(before, n_holes):
            missing += holes[1, h] - holes[0, h]
    if cursor[DONE] != 0:
        for d in range(cursor[ENDED], len(offsets) - 1):
            token_ends[d] = cursor[AT]
            hole_ends[d] = n_holes
        cursor[ENDED] = len(offsets) - 1
    return n_holes


@kernel
def fill_holes(
    data, squeeze, out, n_out, holes, n_holes, tokens, borders, n_mark, first, base, token_ends, hole_ends, cursor,
    short_table, long_table, ring_bytes, ring_tokens, state, target,
):  # fmt: skip
    """Put the tokens of holes, tokens[borders[h]:borders[h + 1]], between those of ``out`` into ``target``, which has room for
    all, and enter them. Where a piece that is not squeezed begins with a line feed, the first ``n_mark`` are those of the ▁
    in front of it, which are left out. ``first``: the first document that ended in this round; ``base``: tokens of the rounds
    before. Returns the number of tokens."""
    at = np.int64(0)
    done = np.int64(0)
    d = np.int64(first)
    for h in range(n_holes + 1):
        while d < cursor[ENDED] and hole_ends[d] <= h:
            token_ends[d] += base + (at - done)
            d += 1
        stop = holes[2, h] if h < n_holes else np.int64(n_out)
        for k in range(done, stop):
            put(target, at, get(out, k))
            at += 1
        done = stop
        if h == n_holes:
            break
        start, stop = holes[0, h], holes[1, h]
        a = np.int64(borders[h])
        b = np.int64(borders[h + 1])
        whole = holes[3, h] != 0
        if not whole and not squeeze and data[start] == _NEWLINE:
            a += n_mark
        n = b - a
        for k in range(n):
            put(target, at + k, get(tokens, a + k))
        if not whole and n <= MOST:
            if stop - start <= SHORT:
                lo, hi = short_key(data, start, stop - start)
                keep_short(lo, hi, short_bucket(lo, hi, short_table), target, at, n, short_table, ring_tokens, state)
            elif stop - start <= LONGEST:
                x = long_hash(data, start, stop)
                keep_long(
                    x, long_bucket(x, long_table), data, start, stop, target, at, n, long_table, ring_bytes, ring_tokens, state
                )  # fmt: skip
        at += n
    return at
