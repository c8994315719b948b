"""Numba kernels of the BPE encoder: words in, token ids out.

Distinct words are few (Zipf), so each is merged once and then found in a cache. A word that is not there becomes its base
symbols, bytes or characters, which are merged by repeated search for the lowest rank, leftmost first; long words use a
heap instead (m log m).

Characters: ``pages`` (uint16 [0x1100]) and ``places`` (int32 [rows * 256, 4]) give the id of a character in the middle of a
word, and as its first, last and only one (which differ in models that mark the beginning or the end of words); -1: not in
the vocabulary, then ``fallback`` (int32 [256], ids of the pieces of single bytes, or empty) or ``unk`` stands for it, once
for neighbours.

Pair table: ``pair_slots`` (uint64 [slots, 2], a power of two of them): left << 32 | right plus one (0 = empty), and
the rank of the merge. ``byte_pairs`` (int32 [65536]) answers for pairs of single bytes directly. A rank r merges into
``merged[r]``; NO_RANK is larger than any rank.

Cache: ``slots`` (int64 [slots, 4]): hash (0 = empty), start of the word in ``cached_bytes``, word length << 32 |
number of tokens, start of the tokens in ``cached_tokens``. When it is two thirds full, or one of the arrays is, it is
emptied: memory stays bounded, and frequent words return at once.
"""

import numpy as np

from shardpiece.intrinsics import MIX_1, hash_bytes, same_bytes
from shardpiece.kernel_cache import kernel
from shardpiece.text.normalization.character_kernels import decode

NO_RANK = np.int32(2**31 - 1)
LONG_WORD = 48
CACHED_WORD = 256

STATE_ENTRIES = 0
STATE_BYTES = 1
STATE_TOKENS = 2
STATE_MISSES = 3
STATE_RESETS = 4
STATE_SIZE = 5

_SHIFT_32 = np.uint64(32)
_LOW_32 = np.int64(0xFFFFFFFF)
_SEED = np.uint64(0)


@kernel
def fill_pairs(left, right, pair_slots):
    """Enter merge r = (left[r], right[r]); of equal pairs the first, lower rank counts."""
    mask = len(pair_slots) - 1
    for r in range(len(left)):
        key = ((np.uint64(left[r]) << _SHIFT_32) | np.uint64(right[r])) + np.uint64(1)
        q = np.int64((key * MIX_1) >> _SHIFT_32) & mask
        while pair_slots[q, 0] != 0 and pair_slots[q, 0] != key:
            q = (q + 1) & mask
        if pair_slots[q, 0] == 0:
            pair_slots[q, 0] = key
            pair_slots[q, 1] = np.uint64(r)


@kernel
def pair_rank(a, b, pair_slots):
    """The rank of merging token a with token b, NO_RANK if there is none."""
    key = ((np.uint64(a) << _SHIFT_32) | np.uint64(b)) + np.uint64(1)
    mask = len(pair_slots) - 1
    q = np.int64((key * MIX_1) >> _SHIFT_32) & mask
    while True:
        k = pair_slots[q, 0]
        if k == key:
            return np.int32(pair_slots[q, 1])
        if k == 0:
            return NO_RANK
        q = (q + 1) & mask


@kernel
def byte_symbols(data, start, end, byte_id, tokens):
    """The ids of the bytes of data[start:end] into ``tokens``; returns their number."""
    for i in range(end - start):
        tokens[i] = byte_id[data[start + i]]
    return end - start


@kernel
def character_symbols(data, start, end, pages, places, fallback, unk, tokens):
    """The ids of the characters of data[start:end] into ``tokens``; returns their number."""
    n = 0
    i = start
    while i < end:
        c, width = decode(data, i)
        position = (1 if i == start else 0) + (2 if i + width >= end else 0)
        token = places[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF), position]
        if token >= 0:
            tokens[n] = token
            n += 1
        elif len(fallback) > 0:
            for j in range(i, min(i + width, end)):
                tokens[n] = fallback[data[j]]
                n += 1
        elif n == 0 or tokens[n - 1] != unk:
            tokens[n] = unk
            n += 1
        i += width
    return n


@kernel
def merge_short(tokens, n, pair_slots, merged, ranks, out, at):
    """Merge the ``n`` symbols in ``tokens``, at most LONG_WORD, into out[at:]; ``ranks`` (int32) holds the ranks of
    neighbours. Returns the number of tokens."""
    while n > 1:
        best = NO_RANK
        j = -1
        for i in range(n - 1):
            if ranks[i] < best:
                best = ranks[i]
                j = i
        if j < 0:
            break
        tokens[j] = merged[best]
        n -= 1
        for i in range(j + 1, n):
            tokens[i] = tokens[i + 1]
        for i in range(j + 1, n - 1):
            ranks[i] = ranks[i + 1]
        if j < n - 1:
            ranks[j] = pair_rank(tokens[j], tokens[j + 1], pair_slots)
        if j > 0:
            ranks[j - 1] = pair_rank(tokens[j - 1], tokens[j], pair_slots)
    for i in range(n):
        out[at + i] = tokens[i]
    return n


@kernel
def push(heap, size, value):
    """Add to a binary min-heap of ``size`` int64 values."""
    x = size
    while x > 0:
        y = (x - 1) >> 1
        if heap[y] <= value:
            break
        heap[x] = heap[y]
        x = y
    heap[x] = value


@kernel
def pop(heap, size):
    """Remove and return the least of ``size`` values."""
    top = heap[0]
    value = heap[size - 1]
    n = size - 1
    x = 0
    while True:
        y = 2 * x + 1
        if y >= n:
            break
        if y + 1 < n and heap[y + 1] < heap[y]:
            y += 1
        if heap[y] >= value:
            break
        heap[x] = heap[y]
        x = y
    heap[x] = value
    return top


@kernel
def merge_long(tokens, n, pair_slots, merged, out, at):
    """As merge_short for any length, in m log m: a heap of (rank, position) over a linked list of symbols.

    Entries are int64 rank << 32 | position, so the least is the lowest rank, leftmost first. An entry is stale when
    the pair at its position has another rank by now.
    """
    ranks = np.empty(n, np.int32)
    following = np.empty(n, np.int32)
    before = np.empty(n, np.int32)
    # Every merge removes one entry for good and adds at most two.
    heap = np.empty(3 * n, np.int64)
    size = 0
    for i in range(n):
        following[i] = i + 1
        before[i] = i - 1
        ranks[i] = NO_RANK
        if i + 1 < n:
            ranks[i] = pair_rank(tokens[i], tokens[i + 1], pair_slots)
            if ranks[i] != NO_RANK:
                push(heap, size, (np.int64(ranks[i]) << 32) | np.int64(i))
                size += 1
    while size > 0:
        entry = pop(heap, size)
        size -= 1
        i = entry & _LOW_32
        rank = np.int32(entry >> 32)
        if ranks[i] != rank:
            continue
        j = following[i]
        tokens[i] = merged[rank]
        following[i] = following[j]
        ranks[j] = NO_RANK
        tokens[j] = -1
        if following[i] < n:
            before[following[i]] = i
            ranks[i] = pair_rank(tokens[i], tokens[following[i]], pair_slots)
            if ranks[i] != NO_RANK:
                push(heap, size, (np.int64(ranks[i]) << 32) | np.int64(i))
                size += 1
        else:
            ranks[i] = NO_RANK
        h = before[i]
        if h >= 0:
            ranks[h] = pair_rank(tokens[h], tokens[i], pair_slots)
            if ranks[h] != NO_RANK:
                push(heap, size, (np.int64(ranks[h]) << 32) | np.int64(h))
                size += 1
    i = 0
    count = 0
    while i < n:
        out[at + count] = tokens[i]
        count += 1
        i = following[i]
    return count


@kernel
def encode_word(
    data, start, end, byte_id, byte_pairs, pages, places, fallback, unk, pair_slots, merged, tokens, ranks, out, at
):
    """One word into out[at:]; returns the number of tokens. ``tokens`` and ``ranks``: scratch for LONG_WORD symbols."""
    long = end - start > LONG_WORD
    symbols = np.empty(end - start, np.int32) if long else tokens
    if len(byte_id) > 0:
        n = byte_symbols(data, start, end, byte_id, symbols)
        if not long:
            for i in range(n - 1):
                ranks[i] = byte_pairs[(np.int64(data[start + i]) << 8) | np.int64(data[start + i + 1])]
            return merge_short(symbols, n, pair_slots, merged, ranks, out, at)
    else:
        n = character_symbols(data, start, end, pages, places, fallback, unk, symbols)
        if not long:
            for i in range(n - 1):
                ranks[i] = pair_rank(symbols[i], symbols[i + 1], pair_slots)
            return merge_short(symbols, n, pair_slots, merged, ranks, out, at)
    return merge_long(symbols, n, pair_slots, merged, out, at)


@kernel
def encode_words(
    data,
    word_ends,
    document_ends,
    first_byte,
    byte_id,
    byte_pairs,
    pages,
    places,
    fallback,
    unk,
    pair_slots,
    merged,
    slots,
    cached_bytes,
    cached_tokens,
    state,
    out,
    token_ends,
):
    """Encode all words, as bytes when ``byte_id`` (int32 [256]) is not empty, else as characters. ``out`` (int32) must hold
    as many elements as there are bytes; ``token_ends`` (int64 [n]) receives the number of tokens up to and including each
    document. Returns the number of tokens."""
    tokens = np.empty(LONG_WORD, np.int32)
    ranks = np.empty(LONG_WORD, np.int32)
    mask = len(slots) - 1
    room = len(slots) * 2 // 3
    at = np.int64(0)
    start = np.int64(first_byte)
    w = 0
    for d in range(len(document_ends)):
        while w < document_ends[d]:
            end = word_ends[w]
            n = end - start
            if n == 1 and len(byte_id) > 0:
                out[at] = byte_id[data[start]]
                at += 1
            elif n > CACHED_WORD:
                at += encode_word(
                    data, start, end, byte_id, byte_pairs, pages, places, fallback, unk, pair_slots, merged, tokens,
                    ranks, out, at,
                )  # fmt: skip
                state[STATE_MISSES] += 1
            else:
                h = np.int64(hash_bytes(data, start, end, _SEED))
                if h == 0:
                    h = 1
                q = h & mask
                while True:
                    k = slots[q, 0]
                    if k == h:
                        a = slots[q, 1]
                        packed = slots[q, 2]
                        if packed >> 32 == n and same_bytes(data, start, cached_bytes, a, n):
                            a = slots[q, 3]
                            for i in range(packed & _LOW_32):
                                out[at + i] = cached_tokens[a + i]
                            at += packed & _LOW_32
                            break
                    elif k == 0:
                        state[STATE_MISSES] += 1
                        m = encode_word(
                            data, start, end, byte_id, byte_pairs, pages, places, fallback, unk, pair_slots, merged,
                            tokens, ranks, out, at,
                        )  # fmt: skip
                        if (
                            state[STATE_ENTRIES] >= room
                            or state[STATE_BYTES] + n > len(cached_bytes)
                            or state[STATE_TOKENS] + m > len(cached_tokens)
                        ):
                            slots[:, 0] = 0
                            state[STATE_ENTRIES] = 0
                            state[STATE_BYTES] = 0
                            state[STATE_TOKENS] = 0
                            state[STATE_RESETS] += 1
                            q = h & mask
                        a = state[STATE_BYTES]
                        for i in range(n):
                            cached_bytes[a + i] = data[start + i]
                        b = state[STATE_TOKENS]
                        for i in range(m):
                            cached_tokens[b + i] = out[at + i]
                        slots[q, 0] = h
                        slots[q, 1] = a
                        slots[q, 2] = (n << 32) | m
                        slots[q, 3] = b
                        state[STATE_ENTRIES] += 1
                        state[STATE_BYTES] += n
                        state[STATE_TOKENS] += m
                        at += m
                        break
                    q = (q + 1) & mask
            w += 1
            start = end
        token_ends[d] = at
    return at
