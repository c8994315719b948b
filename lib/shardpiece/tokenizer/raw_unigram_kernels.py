"""Numba kernels of the cache of raw words for Unigram models that add up float32 along a document: raw documents in, ids out,
in one pass (see ``raw_words``; for the sums and what of them may be kept ``viterbi_kernels``).

Documents are cut, a block of pieces at a time (``unigram_cut_kernels``), and the pieces looked up (``unigram_recall_kernels``). Those
that are not there are normalized and segmented, which does not depend on the sum before them, and entered; then the tokens of
all are written, and their scores added up. A piece as a whole is a segment in the sense of ``viterbi_kernels``, between two
borders: its best path is kept with one of LIMITS, and where the sum is not below that, or the piece is no entry, it is
normalized and segmented from the sum on.

``cells``: uint64 [2 * slots], the trie: of each slot the node as in ``nodes`` of ``viterbi_kernels``, and the score of the piece
that ends there, -inf for none, which ``cell_scores`` (float64) has too: the same memory.
"""

import numpy as np

from shardpiece.intrinsics import get, put
from shardpiece.kernel_cache import inlined_kernel, kernel, plain_kernel
from shardpiece.text.normalization.character_kernels import decode
from shardpiece.text.normalization.charsmap_kernels import longest_rule, sentencepiece_documents
from shardpiece.tokenizer.raw_word_kernels import LONGEST, MOST
from shardpiece.tokenizer.unigram_cut_kernels import (
    AT,
    BEGIN,
    CURSOR,
    DONE,
    ENDED,
    KIND_BITS,
    KNOWN,
    MARKED,
    OPEN,
    PLACE,
    ROOM,
    WHOLE,
    cut_pieces,
    make_keys,
)
from shardpiece.tokenizer.unigram_recall_kernels import enter, find_pieces, recall_pieces
from shardpiece.tokenizer.viterbi_kernels import (
    LIMITS,
    RESET,
    STATE_EXACT,
    STATE_MISSES,
    UNKNOWN,
    follow,
    segment_words,
    walk_back,
    write_path,
)

AT_ONCE = 160
"""Bytes of a normalized piece that is segmented as a whole."""

_SPACE = 0x20
_NONE = -np.inf
_LOW_32 = np.uint64(0xFFFFFFFF)
_32, _33 = np.uint64(32), np.uint64(33)
_ONE = np.uint64(1)
_MOST_LEVEL = int(np.flatnonzero(LIMITS < RESET)[-1])


@inlined_kernel
def normalize_piece(data, start, stop, marked, units, targets, symbols, plain, pages, begins, text):
    """What a piece becomes into ``text`` (uint8 [AT_ONCE + 8]); returns its length, -1 where there is a space in it, a
    symbol, nothing, or too much."""
    n = np.int64(0)
    if marked:
        put(text, 0, np.uint8(0xE2))
        put(text, 1, np.uint8(0x96))
        put(text, 2, np.uint8(0x81))
        n = np.int64(3)
    i = start
    while i < stop:
        if n >= AT_ONCE:
            return np.int64(-1)
        b = get(data, i)
        if b < 0x80 and (i + 1 == stop or get(data, i + 1) < 0x80):
            if get(plain, np.int64(b)) != b:
                return np.int64(-1)
            put(text, n, b)
            n += 1
            i += 1
            continue
        c, width = decode(data, i)
        if begins[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)]:
            if len(symbols) > 0:
                return np.int64(-1)
            length, value = longest_rule(units, data, i, stop)
            if length > 0:
                if targets[value] == 0:
                    return np.int64(-1)
                while targets[value] != 0:
                    if targets[value] == _SPACE or n >= AT_ONCE:
                        return np.int64(-1)
                    put(text, n, targets[value])
                    n += 1
                    value += 1
                i += length
                continue
        for k in range(width):
            put(text, n + k, get(data, i + k))
        n += width
        i += width
    return n if n <= AT_ONCE else np.int64(-1)


@inlined_kernel
def best_paths(text, n, cells, cell_scores, unknown_score, best, second, node_at, begin_at):
    """``two_best`` of ``viterbi_kernels`` for text[:n] without branches where a piece ends."""
    put(best, 0, 0.0)
    put(second, 0, _NONE)
    for j in range(1, n + 1):
        put(best, j, _NONE)
        put(second, j, _NONE)
    i = np.int64(0)
    widest = 0.0
    characters = np.int64(0)
    root = np.int64(get(cells, 0) >> _33)
    while i < n:
        score = get(best, i)
        below = get(second, i)
        widest = max(widest, abs(score))
        characters += 1
        b = get(text, i)
        single = np.int64(1) + np.int64(b >= 0xC0) + np.int64(b >= 0xE0) + np.int64(b >= 0xF0)
        single = min(single, n - i)
        has_single = False
        node = np.uint64(0)
        base = root
        j = i
        while j < n:
            t = base + np.int64(get(text, j))
            unit = get(cells, 2 * t)
            if unit & _LOW_32 != node:
                break
            weight = get(cell_scores, 2 * t + 1)
            node = np.uint64(t)
            base = np.int64(unit >> _33)
            j += 1
            has_single |= (j - i == single) & (((unit >> _32) & _ONE) != 0)
            candidate = score + weight
            old = get(best, j)
            better = candidate > old
            put(second, j, max(max(get(second, j), below + weight), min(old, candidate)))
            put(best, j, candidate if better else old)
            put(node_at, j, np.int32(t) if better else get(node_at, j))
            put(begin_at, j, np.int32(i) if better else get(begin_at, j))
        if not has_single:
            j = i + single
            candidate = score + unknown_score
            old = get(best, j)
            better = candidate > old
            put(second, j, max(max(get(second, j), below + unknown_score), min(old, candidate)))
            put(best, j, candidate if better else old)
            put(node_at, j, UNKNOWN if better else get(node_at, j))
            put(begin_at, j, np.int32(i) if better else get(begin_at, j))
        i += single
    return max(widest, abs(get(best, n))), characters


@inlined_kernel
def narrow_level(margin, widest, count, limits):
    """The number of the last of the limits below which the sum before a segment may lie, for its best path to be the one
    from 0: see ``viterbi_kernels``. ``count``: of the path's pieces and the segment's characters."""
    reach = margin * 2.0**24 / (1.01 * np.float64(max(count, 1))) - widest - 1.0
    reach = min(reach, RESET - widest - 1.0)
    level = np.int64(_MOST_LEVEL)
    while level > 0 and limits[level] > reach:
        level -= 1
    return np.uint64(level)


@inlined_kernel
def segment_from_zero(
    j, data, text, n, starts, stops, lows, highs, buckets, cells, cell_scores, ids, scores, lengths, unknown_score, unk_id,
    fused_id, byte_ids, limits, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, best, second, node_at,
    begin_at, path, out, at,
):  # fmt: skip
    """Segment piece j, whose normalized bytes are text[:n], from 0 and enter it; its tokens go to out[at:], where nothing
    stays. Returns False where a character has no token."""
    widest, characters = best_paths(text, n, cells, cell_scores, unknown_score, best, second, node_at, begin_at)
    m = walk_back(n, node_at, begin_at, ids, path)
    margin = best[n] - second[n] - 1e-12 * (widest + 1.0)
    level = narrow_level(margin, widest, m + characters, limits)
    written, _ = write_path(text, 0, n, path, m, lengths, unk_id, byte_ids, out, at, False)
    if written < 0:
        return False
    if m <= MOST and written - at <= MOST:
        enter(
            j, data, starts, stops, lows, highs, buckets, path, m, level, fused_id, scores, unknown_score, out, at,
            written - at, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state,
        )  # fmt: skip
    return True


@plain_kernel
def segment_missing(
    missing, n_missing, data, starts, stops, lows, highs, buckets, units, targets, symbols, plain, pages, begins, cells,
    cell_scores, ids, scores, lengths, unknown_score, unk_id, fused_id, byte_ids, limits, short_table, long_table, ring_bytes,
    ring_tokens, ring_scores, state, best, second, node_at, begin_at, path, text, out, at,
):  # fmt: skip
    """Segment the pieces of ``missing`` and enter them, but for those that ``normalize_piece`` leaves. Returns False where a
    character has no token."""
    for q in range(n_missing):
        j = get(missing, q)
        packed = get(starts, j)
        n = normalize_piece(
            data, packed >> KIND_BITS, get(stops, j), packed & MARKED != 0, units, targets, symbols, plain, pages, begins, text
        )  # fmt: skip
        if n < 0:
            continue
        if not segment_from_zero(
            j, data, text, n, starts, stops, lows, highs, buckets, cells, cell_scores, ids, scores, lengths, unknown_score,
            unk_id, fused_id, byte_ids, limits, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, best,
            second, node_at, begin_at, path, out, at,
        ):  # fmt: skip
            return False
    return True


@plain_kernel
def fuse(at, written, begin, fused_id, out):
    """Drop the first token of out[at:written] if it and the one before it in the document are the unknown one; returns where
    the tokens end."""
    if written > at > begin and out[at] == fused_id and out[at - 1] == fused_id:
        for k in range(at + 1, written):
            out[k - 1] = out[k]
        return written - 1
    return written


@kernel
def encode_documents(
    data, offsets, lines, safe, class_pages, classes, chinese, mark_id, fused_id, units, targets, symbols, plain, pages, begins, cells,
    cell_scores, nodes, weights, ids, wide_scores, scores, lengths, unknown_score, unk_id, byte_ids, pairs, joins, mark_joins,
    limits, short, long, segment_state, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, token_ends,
):  # fmt: skip
    """The tokens (int32) of all documents; ``token_ends`` (int64 [documents]) receives their number up to and including
    each. ``class_pages`` to ``fused_id``: see ``unigram_cut_kernels`` and ``unigram_recall_kernels``. ``units`` to ``begins``: the
    normalizer, ``nodes`` to ``segment_state``: the model, as the kernels for them take them. An array that is empty but for
    a -1: a character has no token."""
    starts = np.empty(ROOM, np.int64)
    stops = np.empty(ROOM, np.int64)
    lows = np.empty(ROOM, np.uint64)
    highs = np.empty(ROOM, np.uint64)
    buckets = np.empty(ROOM, np.int64)
    entries = np.empty(ROOM, np.int64)
    missing = np.empty(ROOM, np.int64)
    last_pieces = np.empty(len(token_ends) + 1, np.int64)
    best = np.empty(AT_ONCE + 1, np.float64)
    second = np.empty(AT_ONCE + 1, np.float64)
    node_at = np.empty(AT_ONCE + 1, np.int32)
    begin_at = np.empty(AT_ONCE + 1, np.int32)
    path = np.empty(AT_ONCE + 1, np.int32)
    cursor = np.zeros(CURSOR, np.int64)
    cursor[PLACE] = offsets[0]
    cursor[OPEN] = -1
    sums = np.zeros(1, np.float64)
    scratch = np.empty(AT_ONCE + 8, np.uint8)
    bounds = np.empty(2, np.int64)
    word_end = np.empty(1, np.int64)
    none = np.empty(0, np.int64)
    out = np.empty(np.int64(offsets[len(offsets) - 1]) - np.int64(offsets[0]) + ROOM * MOST, np.int32)
    no_token = np.full(1, -1, np.int32)
    while cursor[DONE] == 0:
        count = cut_pieces(data, offsets, cursor, lines, safe, class_pages, classes, chinese, starts, stops, last_pieces)
        make_keys(count, data, starts, stops, lows, highs, buckets, short_table, long_table)
        if cursor[AT] + ROOM * MOST > len(out):
            grown = np.empty(2 * len(out), np.int32)
            grown[: cursor[AT]] = out[: cursor[AT]]
            out = grown
        n_missing = find_pieces(
            count, lows, highs, buckets, entries, short_table, long_table, ring_bytes, ring_tokens, missing
        )
        if n_missing > 0:
            segment_state[STATE_MISSES] += n_missing
            if not segment_missing(
                missing, n_missing, data, starts, stops, lows, highs, buckets, units, targets, symbols, plain, pages, begins,
                cells, cell_scores, ids, scores, lengths, unknown_score, unk_id, fused_id, byte_ids, limits, short_table,
                long_table, ring_bytes, ring_tokens, ring_scores, state, best, second, node_at, begin_at, path, scratch, out,
                cursor[AT],
            ):  # fmt: skip
                return no_token
        j = np.int64(0)
        while True:
            j = recall_pieces(
                j, count, data, cursor, sums, starts, stops, last_pieces, lows, highs, entries, scores, unknown_score, fused_id,
                mark_id, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, out, token_ends,
            )  # fmt: skip
            if j == count:
                break
            start = starts[j] >> KIND_BITS
            stop = stops[j]
            marked = starts[j] & MARKED != 0
            whole = starts[j] & WHOLE != 0
            text = scratch
            n = np.int64(-1)
            if stop - start <= LONGEST:
                n = normalize_piece(
                    data, start, stop, marked, units, targets, symbols, plain, pages, begins, scratch
                )  # fmt: skip
            if n < 0:
                bounds[0] = start
                bounds[1] = stop
                text, _ = sentencepiece_documents(
                    data, bounds, units, targets, symbols, plain, pages, begins, marked, False, True, True
                )
                n = np.int64(len(text))
            at = cursor[AT]
            if at + n + ROOM * MOST > len(out):
                grown = np.empty(2 * len(out) + n, np.int32)
                grown[:at] = out[:at]
                out = grown
            written = at
            segment_state[STATE_EXACT] += 1
            if n <= AT_ONCE and not whole:
                if cursor[KNOWN] == 0 and stop - start <= LONGEST:
                    if not segment_from_zero(
                        j, data, text, n, starts, stops, lows, highs, buckets, cells, cell_scores, ids, scores, lengths,
                        unknown_score, unk_id, fused_id, byte_ids, limits, short_table, long_table, ring_bytes, ring_tokens,
                        ring_scores, state, best, second, node_at, begin_at, path, out, at,
                    ):  # fmt: skip
                        return no_token
                sums[0] = follow(
                    text, 0, n, sums[0], True, nodes, weights, unknown_score, best, node_at, begin_at
                )  # fmt: skip
                m = walk_back(n, node_at, begin_at, ids, path)
                written, _ = write_path(text, 0, n, path, m, lengths, unk_id, byte_ids, out, at, False)
                if written < 0:
                    return no_token
            elif n > 0:
                word_end[0] = n
                written = segment_words(
                    text, word_end, none, np.int64(0), nodes, weights, ids, wide_scores, scores, lengths, unknown_score, unk_id,
                    byte_ids, pairs, joins, mark_joins, True, limits, short, long, segment_state, sums, out[at:], none,
                )  # fmt: skip
                if written < 0:
                    return no_token
                written += at
            cursor[AT] = fuse(at, written, cursor[BEGIN], fused_id, out)
            j += 1
    for d in range(cursor[ENDED], len(token_ends)):
        token_ends[d] = cursor[AT]
    return out[: cursor[AT]]
