"""Numba kernels of BPE-dropout (Provilkov et al. 2020); see ``bpe_dropout``.

At each step the possible merges are tried in order, lowest rank first, leftmost first: each is left out with the
probability ``dropout``, the first that is not is made; where none is left, the word is done. That is to leave out each with
this probability and to make the first of the others: what becomes of those behind it decides nothing.
"""

import numpy as np

from shardpiece.intrinsics import get, put
from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.tokenizer.pair_kernels import NO_RANK, pair_rank
from shardpiece.tokenizer.sampling_kernels import next_key, part_key, uniform
from shardpiece.tokenizer.symbol_kernels import SINGLE_BYTES, pop, push, word_symbols

SHORT = 64
_LOW_32 = np.int64(0xFFFFFFFF)
_BEYOND = np.int64(2**62)


@plain_kernel
def merge_short_dropped(tokens, n, pairs, merged, dropout, key, ranks):
    """Merge tokens[:n] (int32) in place; ``ranks`` (int64): scratch, ``key``: of the word's stream of numbers. Returns how
    many are left. For short words: takes steps in proportion to the cube of n at most."""
    for i in range(n - 1):
        put(ranks, i, pair_rank(get(tokens, i), get(tokens, i + 1), pairs))
    while n > 1:
        left_out = np.int64(-1)
        while True:
            best = _BEYOND
            for i in range(n - 1):
                merge = (get(ranks, i) << 32) | i
                if merge > left_out and merge < best:
                    best = merge
            if best >> 32 >= NO_RANK:
                return n
            drawn = uniform(key)
            key = next_key(key)
            if drawn >= dropout:
                break
            left_out = best
        j = best & _LOW_32
        put(tokens, j, get(merged, best >> 32))
        n -= 1
        for i in range(j + 1, n):
            put(tokens, i, get(tokens, i + 1))
        for i in range(j + 1, n - 1):
            put(ranks, i, get(ranks, i + 1))
        if j < n - 1:
            put(ranks, j, pair_rank(get(tokens, j), get(tokens, j + 1), pairs))
        if j > 0:
            put(ranks, j - 1, pair_rank(get(tokens, j - 1), get(tokens, j), pairs))
    return n


@kernel
def merge_long_dropped(tokens, n, pairs, merged, dropout, key):
    """As ``merge_short_dropped``, the same result for any number of symbols in m log m: a heap of rank << 32 | position
    over a linked list. Merges that were left out return to it when one is made."""
    ranks = np.full(n, NO_RANK, np.int64)
    following = np.arange(1, n + 1).astype(np.int32)
    before = np.arange(-1, n - 1).astype(np.int32)
    # Every merge removes one entry for good and adds two at most.
    heap = np.empty(3 * n, np.int64)
    left_out = np.empty(3 * n, np.int64)
    size = 0
    waiting = 0
    for i in range(n - 1):
        ranks[i] = pair_rank(tokens[i], tokens[i + 1], pairs)
        if ranks[i] != NO_RANK:
            push(heap, size, (ranks[i] << 32) | np.int64(i))
            size += 1
    while size > 0:
        entry = pop(heap, size)
        size -= 1
        i = entry & _LOW_32
        rank = entry >> 32
        # A pair that is there no more draws no number. It never comes back: its tokens only grow.
        if ranks[i] != rank:
            continue
        drawn = uniform(key)
        key = next_key(key)
        if drawn < dropout:
            left_out[waiting] = entry
            waiting += 1
            continue
        j = following[i]
        tokens[i] = merged[rank]
        following[i] = following[j]
        ranks[j] = NO_RANK
        ranks[i] = NO_RANK
        h = before[i]
        if following[i] < n:
            before[following[i]] = i
            ranks[i] = pair_rank(tokens[i], tokens[following[i]], pairs)
            if ranks[i] != NO_RANK:
                push(heap, size, (ranks[i] << 32) | np.int64(i))
                size += 1
        if h >= 0:
            ranks[h] = pair_rank(tokens[h], tokens[i], pairs)
            if ranks[h] != NO_RANK:
                push(heap, size, (ranks[h] << 32) | np.int64(h))
                size += 1
        for x in range(waiting):
            push(heap, size, left_out[x])
            size += 1
        waiting = 0
    i = 0
    count = 0
    while i < n:
        tokens[count] = tokens[i]
        count += 1
        i = following[i]
    return count


@kernel
def encode_dropped(
    data, word_ends, document_ends, first_byte, keys, dropout, byte_id, pages, places, fallback, unk, flags, pairs, merged,
    short, out, token_ends,
):  # fmt: skip
    """Encode all words: ``data`` uint8, ``word_ends`` and ``document_ends`` int64, ``keys`` uint64 [documents]; words of
    more than ``short`` <= SHORT bytes by the heap. Other tables as in ``encode_kernels``. ``out`` (int32) must hold as many
    elements as there are bytes; ``token_ends`` (int64 [documents]) receives the number of tokens up to and including each
    document. Returns the number of tokens."""
    scratch = np.empty(SHORT, np.int32)
    ranks = np.empty(SHORT, np.int64)
    at = np.int64(0)
    start = np.int64(first_byte)
    w = np.int64(0)
    for d in range(len(document_ends)):
        first = w
        while w < document_ends[d]:
            end = word_ends[w]
            tokens = scratch if end - start <= short else np.empty(end - start, np.int32)
            if flags & SINGLE_BYTES and len(byte_id) > 0:
                n = end - start
                for i in range(n):
                    tokens[i] = byte_id[data[start + i]]
            else:
                n = word_symbols(data, start, end, pages, places, fallback, unk, flags, tokens)
            key = part_key(keys[d], w - first)
            if end - start <= short:
                n = merge_short_dropped(tokens, n, pairs, merged, dropout, key, ranks)
            else:
                n = merge_long_dropped(tokens, n, pairs, merged, dropout, key)
            for i in range(n):
                out[at + i] = tokens[i]
            at += n
            w += 1
            start = end
        token_ends[d] = at
    return at
