"""Numba kernels of the BPE encoder: words in, token ids out.

Words come in blocks: first all keys of a block are made and their places in the word cache asked for, then all words are
looked up, so that the cache's lines have come by then. Those that are not there are encoded together, before any is written:
short ones by merging (``lane_kernels``), longer ones and those that end with a character of three bytes by the longest tokens
(``batch_kernels``). A word that is not in the cache after all, as others of its block took its place, is encoded by itself: by
repeated search for the lowest rank while it has at most SCAN bytes (MERGED where ``greedy_kernels`` cannot be used), by
``greedy_kernels`` when it has more.

Arguments that are the same everywhere: ``byte_id`` (int32 [256]; empty when the model is none of plain bytes),
``byte_pairs`` (uint32 [65536]): ranks of pairs of bytes shifted left by 4, NO_MERGE for none; ``pages``, ``places``,
``fallback``, ``unk``, ``flags``: see ``symbol_kernels``; ``pairs``, ``merged``, ``parts``, ``sides``, ``symbols``, ``starts``,
``seen``: see ``pair_kernels``; ``cells``, ``shorter``, ``lengths``: see ``greedy_kernels``, ``cells`` empty where a word must be merged;
``whole`` (int32): an index, see ``piece_kernels``, of those of ``pieces`` (uint8) and ``piece_offsets`` that merging does not
lead to but words may be, else empty; ``tokens`` (int32), ``ranks`` (int64), ``dead`` (uint8, zeros): scratch.
"""

import numpy as np

from shardpiece.intrinsics import get, put
from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.text.normalization.character_kernels import decode
from shardpiece.tokenizer.batch_kernels import (
    BATCH_BYTES,
    BATCH_WORDS,
    BEGINS,
    BORDER,
    COUNT,
    START,
    STOP,
    WORD,
    encode_batch,
)
from shardpiece.tokenizer.greedy_kernels import encode_greedy
from shardpiece.tokenizer.lane_kernels import NO_MERGE, NOTHING, TOGETHER, alive_tokens, merge_together, pack_rank
from shardpiece.tokenizer.pair_kernels import NO_RANK, merge_ranked, merge_scan, pair_rank
from shardpiece.tokenizer.piece_kernels import find
from shardpiece.tokenizer.symbol_kernels import merge_long, unknown_symbols, word_symbols
from shardpiece.tokenizer.word_cache_kernels import (
    NO_BUCKET,
    STATE_LONG_MISSES,
    STATE_SHORT_MISSES,
    STATE_UNCACHED,
    find_words,
    keep_long,
    keep_short,
    prepare_words,
    recall_long,
    recall_words,
)

BLOCK = 512
SCAN = 16
MERGED = 64
_ZERO = np.uint64(0)


@plain_kernel
def encode_by_pieces(
    data, start, end, fallback, unk, flags, pairs, merged, parts, sides, symbols, starts, seen, cells, shorter,
    lengths, tokens, ranks, dead, out, at,
):  # fmt: skip
    """A word into out[at:], greedily, unknown characters by what stands for them; returns the number of tokens."""
    n = np.int64(0)
    position = start
    while position < end:
        m, position = encode_greedy(
            data, position, end, cells, shorter, lengths, pairs, merged, parts, sides, symbols, starts, seen,
            tokens, ranks, dead, out, at + n,
        )  # fmt: skip
        n += m
        if position < end:
            _, width = decode(data, position)
            n = unknown_symbols(data, position, min(position + width, end), fallback, unk, flags, out[at:], n)
            position += width
    return n


@kernel
def encode_huge(
    data, start, end, pages, places, fallback, unk, flags, pairs, merged, parts, sides, symbols, starts, seen,
    cells, shorter, lengths, tokens, ranks, out, at,
):  # fmt: skip
    """A word of any length, with memory of its own."""
    if len(cells) > 0:
        dead = np.zeros(end - start + 2, np.uint8)
        return encode_by_pieces(
            data, start, end, fallback, unk, flags, pairs, merged, parts, sides, symbols, starts, seen, cells,
            shorter, lengths, tokens, ranks, dead, out, at,
        )  # fmt: skip
    own = np.empty(end - start + 1, np.int32)
    n = word_symbols(data, start, end, pages, places, fallback, unk, flags, own)
    return merge_long(own, n, pairs, merged, out, at)


@plain_kernel
def encode_word(
    data, start, end, byte_id, byte_pairs, pages, places, fallback, unk, flags, pairs, merged, parts, sides,
    symbols, starts, seen, cells, shorter, lengths, tokens, ranks, dead, out, at,
):  # fmt: skip
    """A word of at most LONG bytes, of MERGED where it must be merged, into out[at:]; returns the number of tokens."""
    n = end - start
    if len(byte_id) > 0:
        if n <= SCAN:
            for i in range(n):
                tokens[i] = byte_id[data[start + i]]
            for i in range(n - 1):
                packed = byte_pairs[(np.int64(data[start + i]) << 8) | np.int64(data[start + i + 1])]
                ranks[i] = NO_RANK if packed == NO_MERGE else np.int64(packed) >> 4
            n, _ = merge_ranked(tokens, n, pairs, merged, ranks)
            for i in range(n):
                out[at + i] = tokens[i]
            return n
    elif n <= SCAN or len(cells) == 0:
        n = word_symbols(data, start, end, pages, places, fallback, unk, flags, tokens)
        n, _ = merge_scan(tokens, n, pairs, merged, ranks)
        for i in range(n):
            out[at + i] = tokens[i]
        return n
    return encode_by_pieces(
        data, start, end, fallback, unk, flags, pairs, merged, parts, sides, symbols, starts, seen, cells,
        shorter, lengths, tokens, ranks, dead, out, at,
    )  # fmt: skip


@plain_kernel
def load_word(
    data, start, end, byte_id, byte_pairs, pages, places, fallback, unk, flags, pairs, whole, pieces, piece_offsets, tokens,
    lane_tokens, lane_ranks, base,
):  # fmt: skip
    """The symbols of a word of at most 15 bytes into lane_tokens[base:] and the ranks of neighbours into
    lane_ranks[base:base + 16]; returns the number of symbols."""
    for p in range(16):
        put(lane_ranks, base + p, NO_MERGE)
    if len(whole) > 0:
        token = find(data, start, end, pieces, piece_offsets, whole)
        if token >= 0:
            put(lane_tokens, base, np.int32(token))
            return np.int64(1)
    if len(byte_id) > 0:
        n = end - start
        for p in range(n):
            put(lane_tokens, base + p, get(byte_id, np.int64(get(data, start + p))))
        for p in range(n - 1):
            pair = (np.int64(get(data, start + p)) << 8) | np.int64(get(data, start + p + 1))
            put(lane_ranks, base + p, get(byte_pairs, pair) | np.uint32(p))
        return n
    n = word_symbols(data, start, end, pages, places, fallback, unk, flags, tokens)
    for p in range(n):
        put(lane_tokens, base + p, get(tokens, p))
    for p in range(n - 1):
        put(lane_ranks, base + p, pack_rank(pair_rank(get(tokens, p), get(tokens, p + 1), pairs), p))
    return n


@plain_kernel
def by_characters(data, word_ends, first, missing, n_missing, missing_long, n_long):
    """Move the short words that end with a character of three bytes from ``missing`` to ``missing_long``: of few characters, they
    are found sooner by longest tokens than by merging. Returns the new numbers of both."""
    n = np.int64(0)
    for x in range(n_missing):
        i = get(missing, x)
        end = get(word_ends, first + i)
        start = get(word_ends, first + i - 1) if first + i > 0 else end
        moved = np.int64(end - start >= 3) & np.int64(get(data, max(end - 3, np.int64(0))) >= 0xE0)
        put(missing, n, i)
        put(missing_long, n_long, i)
        n += 1 - moved
        n_long += moved
    return n, n_long


@plain_kernel
def fill_batch(data, word_ends, first, first_byte, missing_long, x, n_long, batch_words):
    """Take words off missing_long[x:n_long] as ``encode_batch`` wants them, as many as there is room for; one with more bytes than
    that is passed over. Returns how many, the place of the first of them and the one behind the last."""
    m = np.int64(0)
    size = np.int64(0)
    begin = x
    while x < n_long and m < BATCH_WORDS:
        i = missing_long[x]
        start = word_ends[first + i - 1] if first + i > 0 else np.int64(first_byte)
        end = word_ends[first + i]
        if size + end - start > BATCH_BYTES:
            if m > 0:
                break
            begin = x + 1
        else:
            batch_words[WORD * m + START] = start
            batch_words[WORD * m + STOP] = end
            size += end - start
            m += 1
        x += 1
    return m, begin, x


@kernel
def encode_words(
    data, word_ends, document_ends, first_byte, byte_id, byte_pairs, pages, places, fallback, unk, flags, pairs, merged,
    parts, sides, symbols, starts, seen, cells, shorter, lengths, whole, pieces, piece_offsets, short_table,
    long_table, ring_bytes, ring_tokens, scratch, state, out, token_ends,
):  # fmt: skip
    """Encode all words. ``out`` (int32) must hold four elements more than there are bytes; ``token_ends`` (int64 [n])
    receives the number of tokens up to and including each document. ``scratch``: MERGED, or twice the symbols of the longest
    token where that is more. Returns the number of tokens."""
    tokens = np.empty(scratch, np.int32)
    ranks = np.empty(scratch, np.int64)
    dead = np.zeros(2 * BATCH_BYTES, np.uint8)
    lows = np.empty(BLOCK, np.uint64)
    highs = np.empty(BLOCK, np.uint64)
    buckets = np.empty(BLOCK, np.int64)
    entries = np.empty(BLOCK, np.int64)
    missing = np.empty(BLOCK + 1, np.int64)
    missing_long = np.empty(BLOCK + 1, np.int64)
    batch_words = np.empty(WORD * BATCH_WORDS, np.int64)
    borders = np.empty(BORDER * BATCH_BYTES, np.int64)
    batch_tokens = np.empty(2 * BATCH_BYTES + 4, np.int32)
    single = np.empty(SCAN + 4, np.int32)
    lane_tokens = np.empty(16 * TOGETHER, np.int32)
    lane_ranks = np.empty(16 * TOGETHER, np.uint32)
    alive = np.empty(TOGETHER, np.uint64)
    changed = np.empty(TOGETHER, np.int64)
    active = np.empty(TOGETHER, np.int64)
    n_words = len(word_ends)
    n_documents = len(document_ends)
    at = np.int64(0)
    prepared = np.int64(first_byte)
    d = np.int64(0)
    for first in range(0, n_words, BLOCK):
        last = min(first + BLOCK, n_words)
        prepared = prepare_words(
            data, word_ends, first, last, prepared, lows, highs, buckets, short_table, long_table
        )  # fmt: skip
        n_missing, n_long = find_words(
            last - first, lows, highs, buckets, entries, short_table, long_table, ring_bytes, ring_tokens, state, missing,
            missing_long,
        )  # fmt: skip
        state[STATE_SHORT_MISSES] += n_missing
        if len(cells) > 0:
            n_missing, n_long = by_characters(data, word_ends, first, missing, n_missing, missing_long, n_long)
        for batch in range(0, n_missing, TOGETHER):
            m = min(TOGETHER, n_missing - batch)
            for j in range(m):
                i = missing[batch + j]
                start = word_ends[first + i - 1] if first + i > 0 else np.int64(first_byte)
                n = load_word(
                    data, start, word_ends[first + i], byte_id, byte_pairs, pages, places, fallback, unk, flags, pairs,
                    whole, pieces, piece_offsets, tokens, lane_tokens, lane_ranks, 16 * j,
                )  # fmt: skip
                lane_tokens[16 * j + n] = NOTHING
                alive[j] = (np.uint64(2) << np.uint64(n)) - np.uint64(1)
            merge_together(m, lane_tokens, lane_ranks, alive, changed, active, pairs, merged)
            for j in range(m):
                i = missing[batch + j]
                n = alive_tokens(lane_tokens, 16 * j, alive[j], tokens)
                keep_short(lows[i], highs[i], buckets[i], tokens, 0, n, short_table, ring_tokens, state)
        x = np.int64(0)
        while x < n_long and len(cells) > 0:
            m, x, behind = fill_batch(data, word_ends, first, first_byte, missing_long, x, n_long, batch_words)
            encode_batch(
                m, data, batch_words, borders, fallback, cells, shorter, lengths, pairs, merged, parts, sides, symbols, starts, seen,
                batch_tokens, tokens, ranks, dead,
            )  # fmt: skip
            for j in range(m):
                i = missing_long[x + j]
                start, end = batch_words[WORD * j + START], batch_words[WORD * j + STOP]
                begins, n = batch_words[WORD * j + BEGINS], batch_words[WORD * j + COUNT]
                if len(whole) > 0:
                    token = find(data, start, end, pieces, piece_offsets, whole)
                    if token >= 0:
                        batch_tokens[begins] = token
                        n = np.int64(1)
                if buckets[i] < 0:
                    if n > 0:
                        keep_long(
                            lows[i], ~buckets[i], data, start, end, batch_tokens, begins, n, long_table, ring_bytes,
                            ring_tokens, state,
                        )  # fmt: skip
                elif n >= 0:
                    keep_short(lows[i], highs[i], buckets[i], batch_tokens, begins, n, short_table, ring_tokens, state)
                else:
                    n = encode_word(
                        data, start, end, byte_id, byte_pairs, pages, places, fallback, unk, flags, pairs, merged, parts,
                        sides, symbols, starts, seen, cells, shorter, lengths, tokens, ranks, dead, single, 0,
                    )  # fmt: skip
                    keep_short(lows[i], highs[i], buckets[i], single, 0, n, short_table, ring_tokens, state)
            x = behind
        w = np.int64(first)
        while w < last:
            while d < n_documents and document_ends[d] <= w:
                token_ends[d] = at
                d += 1
            stop = min(last, document_ends[d]) if d < n_documents else last
            i, at = recall_words(
                w - first, stop - first, lows, highs, entries, short_table, ring_tokens, state, out, at
            )  # fmt: skip
            w = first + i
            if w == stop:
                continue
            start = word_ends[w - 1] if w > 0 else np.int64(first_byte)
            end = word_ends[w]
            bucket = buckets[i]
            m = np.int64(0)
            if bucket < 0 and bucket != NO_BUCKET:
                m = recall_long(
                    lows[i], ~bucket, data, start, end, long_table, ring_bytes, ring_tokens, state, out, at
                )  # fmt: skip
            if m == 0:
                if len(whole) > 0:
                    token = find(data, start, end, pieces, piece_offsets, whole)
                    if token >= 0:
                        out[at] = token
                        m = np.int64(1)
                if m == 0 and (bucket == NO_BUCKET or (len(cells) == 0 and end - start > MERGED)):
                    m = encode_huge(
                        data, start, end, pages, places, fallback, unk, flags, pairs, merged, parts, sides,
                        symbols, starts, seen, cells, shorter, lengths, tokens, ranks, out, at,
                    )  # fmt: skip
                elif m == 0:
                    m = encode_word(
                        data, start, end, byte_id, byte_pairs, pages, places, fallback, unk, flags, pairs, merged, parts, sides, symbols, starts, seen, cells, shorter, lengths, tokens, ranks, dead, out, at,
                    )  # fmt: skip
                if bucket >= 0:
                    keep_short(lows[i], highs[i], bucket, out, at, m, short_table, ring_tokens, state)
                elif bucket == NO_BUCKET:
                    state[STATE_UNCACHED] += 1
                else:
                    state[STATE_LONG_MISSES] += 1
                    keep_long(
                        lows[i], ~bucket, data, start, end, out, at, m, long_table, ring_bytes, ring_tokens, state
                    )  # fmt: skip
            at += m
            w += 1
    while d < n_documents:
        token_ends[d] = at
        d += 1
    return at
