"""Numba kernels of the encoders that look words up: WordPiece's greedy longest match, and whole words.

WordPiece: ``cells`` is a trie of all pieces (see ``double_array_kernels``), ``continuing`` its cell behind the prefix of
pieces that continue a word, -1 where none does. Whole words: ``slots``, ``pieces`` and ``piece_offsets`` are the
vocabulary's (see ``piece_kernels``), and ``cells`` is empty. Words that were encoded before come from a cache, see
``word_cache_kernels``.
"""

import numpy as np

from shardpiece.intrinsics import get
from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.tokenizer.double_array_kernels import BASE_MASK, BASE_SHIFT, BYTE_MASK, TOKEN_SHIFT
from shardpiece.tokenizer.piece_kernels import find
from shardpiece.tokenizer.word_cache_kernels import (
    NO_BUCKET,
    SHORT,
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

BLOCK = 1024
_ZERO = np.uint64(0)


def _none(dtype) -> np.ndarray:
    array = np.empty(0, dtype)
    array.flags.writeable = False  # as a vocabulary's arrays are: kernels are compiled for both kinds
    return array


NO_CELLS = np.empty(0, np.uint64)
NO_IDS, NO_BYTES, NO_OFFSETS = np.empty(0, np.int32), _none(np.uint8), _none(np.int64)


@plain_kernel
def cell_behind(text, cells):
    """The cell that the bytes ``text`` lead to from the root, -1 if no piece begins with them."""
    cell = np.int64(0)
    for b in text:
        cell = np.int64((cells[cell] >> BASE_SHIFT) & BASE_MASK) + np.int64(b)
        if cells[cell] & BYTE_MASK != np.uint64(b):
            return np.int64(-1)
    return cell


@plain_kernel
def within(data, start, end, most):
    """Whether data[start:end], UTF-8, has at most ``most`` characters."""
    if end - start <= most:
        return True
    if end - start > 4 * most:
        return False
    n = 0
    for i in range(start, end):
        if data[i] & 0xC0 != 0x80:
            n += 1
    return n <= most


@plain_kernel
def longest_matches(data, start, end, cells, continuing, unk, out, at):
    """The word data[start:end] into out[at:], the longest piece first, then the longest that begins the rest; ``unk`` alone
    where there is none. Returns the number of tokens."""
    n = np.int64(0)
    i = start
    node = np.int64(0)
    while i < end:
        found = _ZERO
        if node >= 0:
            cell = get(cells, node)
            j = i
            while j < end:
                b = np.int64(get(data, j))
                cell = get(cells, np.int64((cell >> BASE_SHIFT) & BASE_MASK) + b)
                if np.int64(cell & BYTE_MASK) != b:
                    break
                j += 1
                if cell >> TOKEN_SHIFT != _ZERO:
                    found = cell >> TOKEN_SHIFT
                    i = j
        if found == _ZERO:
            out[at] = unk
            return np.int64(1)
        out[at + n] = np.int64(found) - 1
        n += 1
        node = continuing
    return n


@plain_kernel
def encode_word(
    data, start, end, cells, continuing, slots, pieces, piece_offsets, most_characters, unk, out, at
):  # fmt: skip
    """One word into out[at:]; returns the number of tokens."""
    if len(cells) == 0:
        token = find(data, start, end, pieces, piece_offsets, slots)
        out[at] = token if token >= 0 else unk
        return np.int64(1)
    if within(data, start, end, most_characters):
        return longest_matches(data, start, end, cells, continuing, unk, out, at)
    out[at] = unk
    return np.int64(1)


@kernel
def encode_words(
    data, word_ends, document_ends, first_byte, cells, continuing, slots, pieces, piece_offsets, most_characters, unk,
    short_table, long_table, ring_bytes, ring_tokens, state, out, token_ends,
):  # fmt: skip
    """Encode all words. ``data`` uint8, ``word_ends`` and ``document_ends`` int64. ``out`` (int32) must hold four elements
    more than there are bytes; ``token_ends`` (int64 [documents]) receives the number of tokens up to and including
    each document. A word that is not in the vocabulary, or does not consist of pieces, or has more than
    ``most_characters``, becomes ``unk``. Returns the number of tokens."""
    lows = np.empty(BLOCK, np.uint64)
    highs = np.empty(BLOCK, np.uint64)
    buckets = np.empty(BLOCK, np.int64)
    entries = np.empty(BLOCK, np.int64)
    missing = np.empty(BLOCK + 1, np.int64)
    missing_long = np.empty(BLOCK + 1, np.int64)
    tokens = np.empty(SHORT + 1, np.int32)
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
        n_missing, _ = find_words(
            last - first, lows, highs, buckets, entries, short_table, long_table, ring_bytes, ring_tokens, state, missing,
            missing_long,
        )  # fmt: skip
        for x in range(n_missing):
            i = missing[x]
            start = word_ends[first + i - 1] if first + i > 0 else np.int64(first_byte)
            m = encode_word(
                data, start, word_ends[first + i], cells, continuing, slots, pieces, piece_offsets, most_characters, unk,
                tokens, np.int64(0),
            )  # fmt: skip
            keep_short(lows[i], highs[i], buckets[i], tokens, np.int64(0), m, short_table, ring_tokens, state)
        state[STATE_SHORT_MISSES] += n_missing
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
                m = encode_word(
                    data, start, end, cells, continuing, slots, pieces, piece_offsets, most_characters, unk, out, at
                )  # fmt: skip
                if bucket >= 0:  # other words of the block took its place
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
