"""Numba kernels of the cache of raw words for Unigram models that add up float32 along a document: raw documents in, ids out,
in one pass (see ``raw_words``; for the sums and what of them may be kept ``viterbi_kernels``).

Documents are cut, a block of pieces at a time (``unigram_cut_kernels``), and the pieces looked up, their tokens written and their
scores added up (``unigram_recall_kernels``). A piece that is not there is normalized and segmented, which does not depend on the sum
before it, and entered. A piece as a whole is a segment in the sense of ``viterbi_kernels``, between two borders: its best path
is kept with one of LIMITS, and where the sum is not below that, or the piece cannot be entered, it is segmented from the sum
on (``unigram_path_kernels``; ``viterbi_kernels`` where it is long).
"""

import numpy as np

from shardpiece.intrinsics import get
from shardpiece.kernel_cache import inlined_kernel, kernel, plain_kernel
from shardpiece.text.normalization.charsmap_kernels import sentencepiece_documents
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
from shardpiece.tokenizer.unigram_path_kernels import (
    AT_ONCE,
    best_paths,
    collect_path,
    follow_narrow,
    narrow_level,
    normalize_piece,
)
from shardpiece.tokenizer.unigram_recall_kernels import enter, enter_short, find_missing, is_there, recall_pieces
from shardpiece.tokenizer.viterbi_kernels import (
    STATE_EXACT,
    STATE_MISSES,
    segment_words,
    write_path,
)
from shardpiece.tokenizer.word_cache_kernels import NO_BUCKET

MANY = 14
"""Pieces of a block that are not there from which on those of the next block are looked for together, before its tokens are
written: fewer are done as they come."""


@inlined_kernel
def segment_from_zero(
    j, data, text, n, starts, stops, lows, highs, buckets, cells, cell_scores, scores, lengths, unknown_score, unk_id,
    fused_id, byte_ids, limits, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, best, second, last, path, out, at,
):  # fmt: skip
    """Segment piece j, whose normalized bytes are text[:n], from 0 and enter it; its tokens go to out[at:], where nothing
    stays. Returns False where a character has no token."""
    widest, characters = best_paths(text, n, cells, cell_scores, unknown_score, best, second, last)
    m = collect_path(n, last, path)
    margin = best[n] - second[n] - 1e-12 * (widest + 1.0)
    level = narrow_level(margin, widest, m + characters, limits)
    if (
        get(buckets, j) >= 0
        and 0 < m <= 4
        and enter_short(
            get(lows, j), get(highs, j), get(buckets, j), path, m, level, unk_id, np.int64(len(scores)) - 1, short_table
        )
    ):
        return True
    written, _ = write_path(text, 0, n, path, m, lengths, unk_id, byte_ids, out, at, False)
    if written < 0:
        return False
    if m <= MOST and written - at <= MOST:
        enter(
            j, data, starts, stops, lows, highs, buckets, path, m, level, fused_id, scores, unknown_score, out, at,
            written - at, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state,
        )  # fmt: skip
    return True


@inlined_kernel
def segment_missing(
    missing, n_missing, data, starts, stops, lows, highs, buckets, units, targets, symbols, plain, pages, begins, cells,
    cell_scores, scores, lengths, unknown_score, unk_id, fused_id, byte_ids, limits, short_table, long_table, ring_bytes,
    ring_tokens, ring_scores, state, best, second, last, path, text, out, at,
):  # fmt: skip
    """Segment the pieces of ``missing`` and enter them, but for those that ``normalize_piece`` leaves. Returns False where a
    character has no token."""
    for q in range(n_missing):
        j = get(missing, q)
        if n_missing > 1 and is_there(j, lows, highs, buckets, short_table):
            continue
        packed = get(starts, j)
        n = normalize_piece(
            data, packed >> KIND_BITS, get(stops, j), packed & MARKED != 0, units, targets, symbols, plain, pages, begins, text
        )  # fmt: skip
        if n < 0:
            continue
        if not segment_from_zero(
            j, data, text, n, starts, stops, lows, highs, buckets, cells, cell_scores, scores, lengths, unknown_score,
            unk_id, fused_id, byte_ids, limits, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, best,
            second, last, path, out, at,
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
    limits, short, long, segment_state, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, out,
    token_ends,
):  # fmt: skip
    """The tokens (int32) of all documents; ``token_ends`` (int64 [documents]) receives their number up to and including
    each; ``out`` (int32) is where they go if there is room, ROOM * MOST more than they are. ``class_pages`` to ``fused_id``: see ``unigram_cut_kernels`` and ``unigram_recall_kernels``. ``units`` to ``begins``: the
    normalizer, ``nodes`` to ``segment_state``: the model, as the kernels for them take them. An array that is empty but for
    a -1: a character has no token."""
    starts = np.empty(ROOM, np.int64)
    stops = np.empty(ROOM, np.int64)
    lows = np.empty(ROOM, np.uint64)
    highs = np.empty(ROOM, np.uint64)
    buckets = np.empty(ROOM, np.int64)
    missing = np.empty(ROOM, np.int64)
    last_pieces = np.empty(len(token_ends) + 1, np.int64)
    best = np.empty(AT_ONCE + 1, np.float64)
    second = np.empty(AT_ONCE + 1, np.float64)
    narrow_best = np.empty(AT_ONCE + 1, np.float32)
    last = np.empty(AT_ONCE + 1, np.float64)
    path = np.empty(AT_ONCE + 1, np.int32)
    cursor = np.zeros(CURSOR, np.int64)
    cursor[PLACE] = offsets[0]
    cursor[OPEN] = -1
    sums = np.zeros(1, np.float64)
    scratch = np.empty(AT_ONCE + 8, np.uint8)
    bounds = np.empty(2, np.int64)
    word_end = np.empty(1, np.int64)
    none = np.empty(0, np.int64)
    no_token = np.full(1, -1, np.int32)
    n_missed = np.int64(0)
    while cursor[DONE] == 0:
        count = cut_pieces(
            data, offsets, cursor, lines, safe, class_pages, classes, chinese, starts, stops, last_pieces
        )
        make_keys(count, data, starts, stops, lows, highs, buckets, short_table, long_table)
        if cursor[AT] + ROOM * MOST > len(out):
            grown = np.empty(2 * len(out), np.int32)
            grown[: cursor[AT]] = out[: cursor[AT]]
            out = grown
        if n_missed > MANY:
            n_missing = find_missing(count, lows, highs, buckets, short_table, long_table, missing)
            if n_missing > 0 and not segment_missing(
                missing, n_missing, data, starts, stops, lows, highs, buckets, units, targets, symbols, plain, pages, begins,
                cells, cell_scores, scores, lengths, unknown_score, unk_id, fused_id, byte_ids, limits, short_table,
                long_table, ring_bytes, ring_tokens, ring_scores, state, best, second, last, path, scratch, out, cursor[AT],
            ):  # fmt: skip
                return no_token
            n_missed = n_missing
            segment_state[STATE_MISSES] += n_missing
        else:
            n_missed = np.int64(0)
        tried = np.int64(-1)
        j = np.int64(0)
        while True:
            j = recall_pieces(
                j, count, data, cursor, sums, starts, stops, last_pieces, lows, highs, buckets, scores, unknown_score, fused_id,
                mark_id, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state, out, token_ends,
            )  # fmt: skip
            if j == count:
                break
            if cursor[KNOWN] == 0 and buckets[j] != NO_BUCKET and j != tried:
                tried = j
                missing[0] = j
                n_missed += 1
                segment_state[STATE_MISSES] += 1
                if not segment_missing(
                    missing, 1, data, starts, stops, lows, highs, buckets, units, targets, symbols, plain, pages, begins,
                    cells, cell_scores, scores, lengths, unknown_score, unk_id, fused_id, byte_ids, limits, short_table,
                    long_table, ring_bytes, ring_tokens, ring_scores, state, best, second, last, path, scratch, out,
                    cursor[AT],
                ):  # fmt: skip
                    return no_token
                continue
            start = starts[j] >> KIND_BITS
            stop = stops[j]
            marked = starts[j] & MARKED != 0
            whole = starts[j] & WHOLE != 0
            text = scratch
            n = np.int64(-1)
            if stop - start <= AT_ONCE and not whole:
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
                if cursor[KNOWN] == 0 and stop - start <= LONGEST and not segment_from_zero(
                    j, data, text, n, starts, stops, lows, highs, buckets, cells, cell_scores, scores, lengths, unknown_score,
                    unk_id, fused_id, byte_ids, limits, short_table, long_table, ring_bytes, ring_tokens, ring_scores, state,
                    best, second, last, path, out, at,
                ):  # fmt: skip
                    return no_token
                sums[0] = follow_narrow(
                    text, n, sums[0], cells, cell_scores, unknown_score, narrow_best, last
                )  # fmt: skip
                m = collect_path(n, last, path)
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
