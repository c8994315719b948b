"""Numba kernels of the cache of raw words for Unigram models that add up float32 along a document: raw documents in, ids out,
in one pass (see ``raw_words``; for the sums and what of them may be kept ``viterbi_kernels``).

A piece is looked up; where it is not there, or may not be trusted at the sum so far, it is normalized and segmented. A piece as
a whole is a segment in the sense of ``viterbi_kernels``, between two borders: its best path is kept with one of LIMITS.

Entries are those of ``word_cache_kernels``, but: ``short_table``: the first of four ids has the number of the limit above its
lowest 27 bits, ids that are not there are the one behind the last; a piece of more ids, or that holds unknown characters,
has its place in the rings and the number of tokens, of pieces of the path (from bit 16) and of the limit (from bit 32).
``long_table``: the last integer has the same, and the length from bit 48. ``ring_tokens`` (int32) has tokens, and
``ring_scores`` (float32) at the same place the scores along the path.
"""

import numpy as np

from shardpiece.intrinsics import get, put, same_bytes, store64
from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.text.normalization.charsmap_kernels import sentencepiece_documents
from shardpiece.tokenizer.raw_word_kernels import (
    AT,
    CURSOR,
    DONE,
    ENDED,
    KNOWN,
    LONGEST,
    MARKED,
    MOST,
    PLACE,
    ROOM,
    WHOLE,
    cut_block,
)
from shardpiece.tokenizer.viterbi_kernels import (
    LIMITS,
    RESET,
    STATE_EXACT,
    STATE_MISSES,
    follow,
    level_of,
    segment_words,
    two_best,
    walk_back,
    write_path,
)
from shardpiece.tokenizer.word_cache_kernels import (
    IN_RING,
    STATE_BYTES,
    STATE_TOKENS,
    make_room,
    ring_place,
)

AT_ONCE = 160
"""Bytes of a normalized piece that is segmented as a whole."""

NO_TIES = np.zeros(256, np.uint8)
_ZERO = np.uint64(0)
_NOTHING = np.float32(0)
_RESET = np.float32(RESET)
_LIMITS = LIMITS.astype(np.float32)
_ID_BITS = np.uint64(27)
_LOW_27 = np.uint64(0x7FFFFFF)
_WITHOUT_LEVEL = np.uint64(0xFFFFFFFF07FFFFFF)
_LEVEL = np.uint64(31)
_COUNT = np.uint64(0xFFFF)
_4, _16, _32, _48, _56, _60 = (np.uint64(n) for n in (4, 16, 32, 48, 56, 60))


@plain_kernel
def recall_ring(place, packed, ring_tokens, ring_scores, state, total, out, at):
    """(number of tokens, the sum behind them), -1 when they have been written over."""
    size = np.int64(len(ring_tokens))
    if get(state, np.int64(STATE_TOKENS)) - place > size:
        return np.int64(-1), total
    base = place & (size - 1)
    n = np.int64(packed & _COUNT)
    for k in range(n):
        put(out, at + k, get(ring_tokens, base + k))
    for k in range(np.int64((packed >> _16) & _COUNT)):
        total = total + get(ring_scores, base + k)
    return n, total


@plain_kernel
def recall_pieces(
    j, count, data, cursor, sums, starts, stops, owners, lows, highs, buckets, scores, short_table, long_table,
    ring_bytes, ring_tokens, ring_scores, state, out, token_ends,
):  # fmt: skip
    """Write the tokens of the prepared pieces from j on up to the first that is not there or not to be trusted; returns
    which."""
    at = cursor[AT]
    d = cursor[ENDED]
    total = np.float32(sums[0])
    size = np.int64(len(ring_bytes))
    known = np.int64(0)
    while j < count:
        while d < get(owners, j):
            token_ends[d] = at
            total = _NOTHING
            d += 1
        if abs(total) > _RESET:
            total = _NOTHING
        bucket = get(buckets, j)
        if bucket >= 0:
            lo, hi = get(lows, j), get(highs, j)
            found = get(short_table, bucket + 1)
            missing = ((get(short_table, bucket) ^ lo) | ((found ^ hi) << _4)) != _ZERO
            if missing:
                bucket += 4
                found = get(short_table, bucket + 1)
                missing = ((get(short_table, bucket) ^ lo) | ((found ^ hi) << _4)) != _ZERO
                if missing:
                    break
            n = np.int64(found >> _60)
            a, b = get(short_table, bucket + 2), get(short_table, bucket + 3)
            if n <= 4:
                if not abs(total) < get(_LIMITS, np.int64((a >> _ID_BITS) & _LEVEL)):
                    known = np.int64(1)
                    break
                store64(out, at, a & _WITHOUT_LEVEL)
                store64(out, at + 2, b)
                at += n
                total = total + get(scores, np.int64(a & _LOW_27))
                total = total + get(scores, np.int64(a >> _32))
                if n > 2:
                    total = total + get(scores, np.int64(b & _LOW_27))
                    total = total + get(scores, np.int64(b >> _32))
            else:
                if not abs(total) < get(_LIMITS, np.int64((b >> _32) & _LEVEL)):
                    known = np.int64(1)
                    break
                n, total = recall_ring(np.int64(a), b, ring_tokens, ring_scores, state, total, out, at)
                if n < 0:
                    break
                at += n
        elif bucket > WHOLE:
            entry = ~bucket
            start = get(starts, j)
            length = get(stops, j) - start
            if get(long_table, entry) != get(lows, j):
                entry += 4
                if get(long_table, entry) != get(lows, j):
                    break
            packed = get(long_table, entry + 3)
            place = np.int64(get(long_table, entry + 1))
            if (
                np.int64(packed >> _48) != length
                or get(state, np.int64(STATE_BYTES)) - place > size
                or not same_bytes(data, start, ring_bytes, place & (size - 1), length)
            ):
                break
            if not abs(total) < get(_LIMITS, np.int64((packed >> _32) & _LEVEL)):
                known = np.int64(1)
                break
            n, total = recall_ring(
                np.int64(get(long_table, entry + 2)), packed, ring_tokens, ring_scores, state, total, out, at
            )
            if n < 0:
                break
            at += n
        else:
            break
        j += 1
    cursor[AT] = at
    cursor[ENDED] = d
    cursor[KNOWN] = known  # in the cache, only not to be trusted here
    sums[0] = np.float64(total)
    return j


@plain_kernel
def enter(
    j, data, starts, stops, lows, highs, buckets, path, m, level, unk_id, scores, unknown_score, out, at, n, short_table,
    long_table, ring_bytes, ring_tokens, ring_scores, state,
):  # fmt: skip
    """Enter piece j with its ``m`` pieces ``path``, the last one first, whose tokens are out[at:at + n]."""
    bucket = buckets[j]
    empty = np.uint64(len(scores) - 1)
    inline = bucket >= 0 and m <= 4 and m == n
    for k in range(m):
        inline = inline and path[k] >= 0 and path[k] != unk_id
    first = np.uint64(path[m - 1]) if inline and m > 0 else empty
    second = np.uint64(path[m - 2]) if inline and m > 1 else empty
    third = np.uint64(path[m - 3]) if inline and m > 2 else empty
    fourth = np.uint64(path[m - 4]) if inline and m > 3 else empty
    a = first | (level << _ID_BITS) | (second << _32)
    b = third | (fourth << _32)
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
    if bucket >= 0:
        entry = bucket
        if ((short_table[entry] ^ lows[j]) | ((short_table[entry + 1] ^ highs[j]) << _4)) != _ZERO:
            make_room(short_table, bucket)
        short_table[entry] = lows[j]
        short_table[entry + 1] = highs[j] | (np.uint64(n if inline else IN_RING) << _60)
        short_table[entry + 2] = a
        short_table[entry + 3] = b
        return
    length = stops[j] - starts[j]
    size = np.int64(len(ring_bytes))
    place = ring_place(state[STATE_BYTES], length, size)
    base = place & (size - 1)
    for i in range(length):
        ring_bytes[base + i] = data[starts[j] + i]
    state[STATE_BYTES] = place + length
    entry = ~bucket
    make_room(long_table, entry)
    long_table[entry] = lows[j]
    long_table[entry + 1] = np.uint64(place)
    long_table[entry + 2] = a
    long_table[entry + 3] = b | (np.uint64(length) << _48)


@plain_kernel
def segment_piece(
    j, data, text, n, cursor, sums, starts, stops, lows, highs, buckets, nodes, weights, ids, scores, lengths, unknown_score,
    unk_id, byte_ids, limits, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, best, second, node_at,
    begin_at, path, out,
):  # fmt: skip
    """Segment piece j, whose normalized bytes are text[:n], from the sum so far, and enter it. False: a character has no
    token."""
    at = cursor[AT]
    total = sums[0]
    trusted = False
    m = np.int64(0)
    written = at
    if cursor[KNOWN] == 0:
        state[STATE_MISSES] += 1
        widest, characters = two_best(text, 0, n, nodes, weights, unknown_score, best, second, node_at, begin_at)
        m = walk_back(n, node_at, begin_at, ids, path)
        margin = best[n] - second[n] - 1e-12 * (widest + 1.0)
        reach = margin * 2.0**24 / (1.01 * np.float64(max(m + characters, 1))) - widest - 1.0
        level = level_of(min(reach, RESET - widest - 1.0), limits)
        trusted = abs(total) < limits[np.int64(level)]
        written, _ = write_path(text, 0, n, path, m, lengths, unk_id, byte_ids, out, at, False)
        if written < 0:
            return False
        if stops[j] - starts[j] <= LONGEST and m <= MOST and written - at <= MOST:
            enter(
                j, data, starts, stops, lows, highs, buckets, path, m, level, unk_id, scores, unknown_score, out, at,
                written - at, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state,
            )  # fmt: skip
    if trusted:
        sum32 = np.float32(total)
        for k in range(m - 1, -1, -1):
            sum32 = sum32 + (np.float32(unknown_score) if path[k] < 0 else get(scores, np.int64(path[k])))
        sums[0] = np.float64(sum32)
    else:
        state[STATE_EXACT] += 1
        sums[0] = follow(text, 0, n, total, True, nodes, weights, unknown_score, best, node_at, begin_at)
        m = walk_back(n, node_at, begin_at, ids, path)
        written, _ = write_path(text, 0, n, path, m, lengths, unk_id, byte_ids, out, at, False)
        if written < 0:
            return False
    cursor[AT] = written
    return True


@plain_kernel
def copy_plain(data, start, stop, marked, plain, text):
    """What a piece becomes into ``text``, where it is ASCII that stays as it is; returns its length, else -1."""
    n = np.int64(0)
    if marked:
        text[0], text[1], text[2] = 0xE2, 0x96, 0x81
        n = np.int64(3)
    for i in range(start, stop):
        b = get(data, i)
        if b >= 0x80 or get(plain, np.int64(b)) != b:
            return np.int64(-1)
        put(text, n, b)
        n += 1
    return n


@kernel
def encode_documents(
    data, offsets, lines, safe, units, targets, symbols, plain, pages, begins, nodes, weights, ids, wide_scores, scores, lengths,
    unknown_score, unk_id, byte_ids, pairs, joins, mark_joins, limits, short, long, segment_state, short_table, long_table,
    ring_bytes, ring_tokens, ring_scores, state, token_ends,
):  # fmt: skip
    """The tokens (int32) of all documents; ``token_ends`` (int64 [documents]) receives their number up to and including
    each. ``units`` to ``begins``: the normalizer, ``nodes`` to ``segment_state``: the model, as the kernels for them take
    them. An array that is empty but for a -1: a character has no token."""
    starts = np.empty(ROOM, np.int64)
    stops = np.empty(ROOM, np.int64)
    owners = np.empty(ROOM, np.int64)
    kinds = np.empty(ROOM, np.uint8)
    lows = np.empty(ROOM, np.uint64)
    highs = np.empty(ROOM, np.uint64)
    buckets = np.empty(ROOM, np.int64)
    best = np.empty(AT_ONCE + 1, np.float64)
    second = np.empty(AT_ONCE + 1, np.float64)
    node_at = np.empty(AT_ONCE + 1, np.int32)
    begin_at = np.empty(AT_ONCE + 1, np.int32)
    path = np.empty(AT_ONCE + 1, np.int32)
    cursor = np.zeros(CURSOR, np.int64)
    cursor[PLACE] = offsets[0]
    sums = np.zeros(1, np.float64)
    scratch = np.empty(LONGEST + 3, np.uint8)
    bounds = np.empty(2, np.int64)
    word_end = np.empty(1, np.int64)
    none = np.empty(0, np.int64)
    out = np.empty(np.int64(offsets[len(offsets) - 1]) - np.int64(offsets[0]) + ROOM * MOST, np.int32)
    while cursor[DONE] == 0:
        count = cut_block(
            data, offsets, cursor, True, True, lines, safe, NO_TIES, starts, stops, owners, kinds, lows, highs, buckets, short_table, long_table
        )  # fmt: skip
        if cursor[AT] + ROOM * MOST > len(out):
            grown = np.empty(2 * len(out), np.int32)
            grown[: cursor[AT]] = out[: cursor[AT]]
            out = grown
        j = np.int64(0)
        while True:
            j = recall_pieces(
                j, count, data, cursor, sums, starts, stops, owners, lows, highs, buckets, scores, short_table,
                long_table, ring_bytes, ring_tokens, ring_scores, state, out, token_ends,
            )  # fmt: skip
            if j == count:
                break
            marked = kinds[j] & MARKED != 0
            text = scratch
            n = np.int64(-1)
            if stops[j] - starts[j] <= LONGEST:
                n = copy_plain(data, starts[j], stops[j], marked, plain, scratch)
            if n < 0:
                bounds[0] = starts[j]
                bounds[1] = stops[j]
                text, _ = sentencepiece_documents(
                    data, bounds, units, targets, symbols, plain, pages, begins, marked, False, True, True
                )
                n = np.int64(len(text))
            if cursor[AT] + n + ROOM * MOST > len(out):
                grown = np.empty(2 * len(out) + n, np.int32)
                grown[: cursor[AT]] = out[: cursor[AT]]
                out = grown
            if n <= AT_ONCE and buckets[j] != WHOLE:
                fine = segment_piece(
                    j, data, text, n, cursor, sums, starts, stops, lows, highs, buckets, nodes, weights, ids, scores,
                    lengths, unknown_score, unk_id, byte_ids, limits, short_table, long_table, ring_bytes, ring_tokens,
                    ring_scores, state, best, second, node_at, begin_at, path, out,
                )  # fmt: skip
                if not fine:
                    return np.full(1, -1, np.int32)
            elif n > 0:
                word_end[0] = n
                written = segment_words(
                    text, word_end, none, np.int64(0), nodes, weights, ids, wide_scores, scores, lengths, unknown_score, unk_id,
                    byte_ids, pairs, joins, mark_joins, True, limits, short, long, segment_state, sums, out[cursor[AT] :], none,
                )  # fmt: skip
                if written < 0:
                    return np.full(1, -1, np.int32)
                cursor[AT] += written
            j += 1
    for d in range(cursor[ENDED], len(token_ends)):
        token_ends[d] = cursor[AT]
    return out[: cursor[AT]]
