"""Numba kernels of the cache of raw words, see ``raw_words``: documents cut at ASCII spaces as they are, and the pieces looked
up before anything is done to them.

Pieces come in blocks: first all keys of a block are made and their places in the cache asked for, then the pieces are looked up,
so that the cache's lines have come by then. Tables, rings and ``state``: see ``word_cache_kernels``.

``data`` (uint8), ``offsets`` (int64): the documents. ``squeeze``: pieces are what stands between spaces (and, with ``lines``,
tabs and line feeds), else they begin with a run of spaces (or, with ``lines``, a line feed), the first of which is left out,
and the first piece of a document, which may be empty, with the document. These pieces are MARKED: ▁ is in front of what they
become; not the first one, but with ``prefix``. A space behind a character whose last byte is ``tied`` (uint8 [256]) begins no
piece. They are cut further before or behind ASCII letters, where ``safe`` (bool [128 * 128]) says so of the characters
before and behind; what is behind such a place, or begins with a line feed, is not marked. ``cursor``: int64 [CURSOR], all
zeros but PLACE, offsets[0]. A document that holds ▁ or hardly any spaces is one piece, WHOLE,
which is not looked up.

Keys are those of words there, but that short ones have at most SHORT bytes, and the byte behind says whether the piece is marked;
so does the lowest bit of a hash.
"""

import numpy as np

from shardpiece.intrinsics import bit_count, get, mask_of_range, prefetch, put, store64, trailing_zeros
from shardpiece.kernel_cache import inlined_kernel, kernel, plain_kernel
from shardpiece.tokenizer.word_cache_kernels import (
    NO_BUCKET,
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
SHORT = 14
# Of 64 bytes each may begin a piece, and one may end behind them.
ROOM = BLOCK + 66
LONGEST = 64
"""Bytes of a piece that is looked up."""
MOST = 128
"""Tokens of a piece that is entered."""
SPARSE = 40
"""Bytes to a space from which on a document is not cut."""
EMPTY = NO_BUCKET + 1
WHOLE = NO_BUCKET + 2

DOCUMENT, PLACE, START, CARRY, LETTER, BEHIND, AT, ENDED, DONE, KNOWN = range(10)
CURSOR = 10
MARKED, IS_WHOLE = 1, 2

_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_4, _48, _60, _63 = np.uint64(4), np.uint64(48), np.uint64(60), np.uint64(63)
_BIT_1 = np.uint64(2)
_NEWLINE = np.uint8(0x0A)


@plain_kernel
def look_over(data, start, end):
    """(whether the document data[start:end] holds ▁, whether it has so few spaces that hardly a piece would be looked up)."""
    spaces = np.int64(0)
    i = np.int64(start)
    while i + 66 <= len(data) and i + 66 <= end:
        spaces += bit_count(mask_of_range(data, i, np.uint8(0), np.uint8(0x20), np.uint8(1)))
        found = mask_of_range(data, i + 1, np.uint8(0), np.uint8(0x96), np.uint8(1))
        if found != _ZERO:
            found &= mask_of_range(data, i, np.uint8(0), np.uint8(0xE2), np.uint8(1))
            found &= mask_of_range(data, i + 2, np.uint8(0), np.uint8(0x81), np.uint8(1))
            if found != _ZERO:
                return True, False
        i += 64
    sparse = spaces * SPARSE < i - start
    while i + 2 < end:
        if data[i] == 0xE2 and data[i + 1] == 0x96 and data[i + 2] == 0x81:
            return True, sparse
        i += 1
    return False, sparse


@plain_kernel
def is_one_piece(data, start, end):
    """Whether the document data[start:end] is not to be cut."""
    marked, sparse = look_over(data, start, end)
    return marked or sparse


@inlined_kernel
def key_of_short(data, start, n, marked):
    lo, hi = short_key(data, start, n)
    return lo, hi | (np.uint64(marked) << _48)


@inlined_kernel
def key_of_long(data, start, stop, marked):
    return ((long_hash(data, start, stop) | _BIT_1) & ~_ONE) | np.uint64(marked)


@inlined_kernel
def prepare(
    data, start, stop, marked, d, j, starts, stops, owners, kinds, lows, highs, buckets, short_table, long_table
):
    """Piece j of the block: data[start:stop] of document d, its key, and its bucket, which is asked for. Returns j + 1."""
    put(starts, j, start)
    put(stops, j, stop)
    put(owners, j, d)
    put(kinds, j, np.uint8(marked))
    n = stop - start
    if n <= SHORT:
        if n == 0:
            put(buckets, j, EMPTY)
        else:
            lo, hi = key_of_short(data, start, n, marked)
            bucket = short_bucket(lo, hi, short_table)
            put(lows, j, lo)
            put(highs, j, hi)
            put(buckets, j, bucket)
            prefetch(short_table, bucket)
    elif n <= LONGEST:
        h = key_of_long(data, start, stop, marked)
        bucket = long_bucket(h, long_table)
        put(lows, j, h)
        put(buckets, j, ~bucket)
        prefetch(long_table, bucket)
    else:
        put(buckets, j, NO_BUCKET)
    return j + 1


@inlined_kernel
def is_safe(data, k, end, safe):
    """Whether data may be cut before k: what follows on the character there is ASCII too."""
    a, b = np.int64(get(data, k - 1)), np.int64(get(data, k))
    return (a | b) < 0x80 and safe[(a << 7) | b] and (k + 1 == end or get(data, k + 1) < 0x80)


@plain_kernel
def cut_block(
    data, offsets, cursor, squeeze, prefix, lines, safe, tied, starts, stops, owners, kinds, lows, highs, buckets, short_table, long_table
):  # fmt: skip
    """Prepare the next pieces, about BLOCK of them; returns how many, less only at the end of the last document."""
    n_documents = np.int64(len(offsets)) - 1
    d = cursor[DOCUMENT]
    i = cursor[PLACE]
    start = cursor[START]
    carry = np.uint64(cursor[CARRY])
    letter = np.uint64(cursor[LETTER])
    marked = np.int64(1) - cursor[BEHIND]
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
            letter = _ZERO
            start = np.int64(-1)
            marked = np.int64(prefix)
            if i == end:
                d += 1
                continue
            if is_one_piece(data, i, end):
                put(starts, j, i)
                put(stops, j, end)
                put(owners, j, d)
                put(kinds, j, np.uint8(MARKED | IS_WHOLE))
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
            letters = mask_of_range(data, i, np.uint8(0x20), np.uint8(0x61), np.uint8(26))
        else:
            spaces = _ZERO
            broken = _ZERO
            letters = _ZERO
            for k in range(width):
                b = data[i + k]
                bit = _ONE << np.uint64(k)
                if b == 0x20:
                    spaces |= bit
                elif np.uint8(b - first_break) < breaks:
                    broken |= bit
                elif np.uint8((b | 0x20) - 0x61) < 26:
                    letters |= bit
        valid = ~_ZERO if width == 64 else (_ONE << np.uint64(width)) - _ONE
        # ``carry``: whether there is a character of a word before, and ``letter``, a letter.
        inside = ~(spaces | broken) if squeeze else ~spaces
        inside &= valid
        behind = (inside << _ONE) | carry
        cuts = (letters ^ ((letters << _ONE) | letter)) & inside & behind
        carry = inside >> _63
        letter = letters >> _63
        if squeeze:
            edges = (inside ^ behind) & valid
            both = edges | cuts
            while both != _ZERO:
                bit = both & (~both + _ONE)
                k = i + trailing_zeros(both)
                both ^= bit
                if start < 0:
                    start = k
                    marked = np.int64(1)
                    continue
                if not edges & bit and not is_safe(data, k, end, safe):
                    continue
                j = prepare(
                    data, start, k, marked, d, j, starts, stops, owners, kinds, lows, highs, buckets, short_table, long_table
                )  # fmt: skip
                start = np.int64(-1) if edges & bit else k
                marked = np.int64(0)
        else:
            edges = (spaces & behind) | broken
            edges &= valid
            if begins:
                edges |= broken & _ONE
            both = edges | cuts
            while both != _ZERO:
                bit = both & (~both + _ONE)
                k = i + trailing_zeros(both)
                both ^= bit
                if edges & bit:
                    if get(data, k) == 0x20 and get(tied, np.int64(get(data, max(k - 1, np.int64(0))))) != 0:
                        continue
                elif not is_safe(data, k, end, safe):
                    continue
                j = prepare(
                    data, start, k, marked, d, j, starts, stops, owners, kinds, lows, highs, buckets, short_table, long_table
                )  # fmt: skip
                marked = np.int64(get(data, k) == 0x20)
                start = k + marked
        i += width
        if i == end:
            if start >= 0:
                j = prepare(
                    data, start, end, marked, d, j, starts, stops, owners, kinds, lows, highs, buckets, short_table, long_table
                )  # fmt: skip
            d += 1
    cursor[DOCUMENT] = d
    cursor[PLACE] = i
    cursor[START] = start
    cursor[CARRY] = np.int64(carry)
    cursor[LETTER] = np.int64(letter)
    cursor[BEHIND] = np.int64(1) - marked
    cursor[DONE] = np.int64(d == n_documents)
    return j


@plain_kernel
def recall_block(
    count, data, cursor, starts, stops, owners, kinds, lows, highs, buckets, short_table, long_table, ring_bytes, ring_tokens,
    state, mark, out, token_ends, hole_ends, holes, n_holes,
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
            if kinds[j] & MARKED:
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
        holes[3, n_holes] = np.int64(kinds[j])
        n_holes += 1
    cursor[AT] = at
    cursor[ENDED] = d
    return n_holes


@kernel
def recall_round(
    data, offsets, cursor, squeeze, prefix, lines, safe, tied, short_table, long_table, ring_bytes, ring_tokens, state, mark, most_missing,
    out, token_ends, hole_ends, holes,
):  # fmt: skip
    """Go on from ``cursor`` until the pieces that are not there have ``most_missing`` bytes, or are as many as ``holes`` (int64
    [4, n]: start, stop, place in ``out``, MARKED and IS_WHOLE) has room for, or ``out`` is full: it must have room for ROOM * MOST
    tokens. ``token_ends``, ``hole_ends``: int64 [documents], the tokens and the holes of this round before the end of each
    document that ended. ``mark``: int32, the tokens of an empty piece. Returns the number of holes."""
    starts = np.empty(ROOM, np.int64)
    stops = np.empty(ROOM, np.int64)
    owners = np.empty(ROOM, np.int64)
    kinds = np.empty(ROOM, np.uint8)
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
            data, offsets, cursor, squeeze, prefix, lines, safe, tied, starts, stops, owners, kinds, lows, highs, buckets, short_table,
            long_table,
        )  # fmt: skip
        before = n_holes
        n_holes = recall_block(
            count, data, cursor, starts, stops, owners, kinds, lows, highs, buckets, short_table, long_table, ring_bytes,
            ring_tokens, state, mark, out, token_ends, hole_ends, holes, n_holes,
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
    data, out, n_out, holes, n_holes, tokens, borders, first, base, token_ends, hole_ends, cursor, short_table, long_table,
    ring_bytes, ring_tokens, state, target,
):  # fmt: skip
    """Put the tokens of holes, tokens[borders[h]:borders[h + 1]], between those of ``out`` into ``target``, which has room for
    all, and enter them. ``first``: the first document that ended in this round; ``base``: tokens of the rounds before. Returns
    the number of tokens."""
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
        n = b - a
        for k in range(n):
            put(target, at + k, get(tokens, a + k))
        kind = holes[3, h]
        if not kind & IS_WHOLE and n <= MOST:
            marked = kind & MARKED
            if stop - start <= SHORT:
                lo, hi = key_of_short(data, start, stop - start, marked)
                keep_short(lo, hi, short_bucket(lo, hi, short_table), target, at, n, short_table, ring_tokens, state)
            elif stop - start <= LONGEST:
                x = key_of_long(data, start, stop, marked)
                keep_long(
                    x, long_bucket(x, long_table), data, start, stop, target, at, n, long_table, ring_bytes, ring_tokens, state
                )  # fmt: skip
        at += n
    return at


@kernel
def without_marks(data, offsets, kinds, out, new_offsets):
    """Copy texts but for the ▁ at the beginning of those that are not MARKED. ``new_offsets``: int64, the first one is 0."""
    at = np.int64(0)
    for d in range(len(offsets) - 1):
        i = np.int64(offsets[d])
        end = np.int64(offsets[d + 1])
        if not kinds[d] & MARKED and i + 3 <= end and data[i] == 0xE2 and data[i + 1] == 0x96 and data[i + 2] == 0x81:
            i += 3
        for k in range(i, end):
            put(out, at, get(data, k))
            at += 1
        new_offsets[d + 1] = at


@kernel
def with_marks(data, offsets, kinds, out, new_offsets):
    """Copy texts, with ▁ in front of those that are MARKED and do not go with a whole document."""
    at = np.int64(0)
    for d in range(len(offsets) - 1):
        if kinds[d] & MARKED and not kinds[d] & IS_WHOLE:
            put(out, at, np.uint8(0xE2))
            put(out, at + 1, np.uint8(0x96))
            put(out, at + 2, np.uint8(0x81))
            at += 3
        for k in range(offsets[d], offsets[d + 1]):
            put(out, at, get(data, np.int64(k)))
            at += 1
        new_offsets[d + 1] = at
