"""Numba kernels of the Unigram encoder: words in, the most probable pieces out (Viterbi 1967 over a trie, Kudo 2018).

Scores are float64. A path replaces another one only when its score is strictly higher, and paths to a place are met in
the order of where their last piece begins: of equal paths the one with the longest last piece wins, as in SentencePiece.

``nodes``: trie_kernels.NODE, the trie over the pieces' bytes; weight is the piece's score, -inf where no piece ends.
``ids``: int32 [slots], the piece that ends at each node. ``byte_ids``: int32 [256], -1 for bytes without a piece.

Cache: laid out as in ``encode_kernels``.
"""

import numpy as np

from shardpiece.intrinsics import hash_bytes, same_bytes
from shardpiece.kernel_cache import kernel, plain_kernel

CACHED_WORD = 256
STATE_ENTRIES = 0
STATE_BYTES = 1
STATE_TOKENS = 2
STATE_MISSES = 3
STATE_RESETS = 4
STATE_SIZE = 5
NO_UNKNOWN = -1

_NONE = -np.inf
_UNREACHED = np.int32(-2)
_UNKNOWN = np.int32(-1)
_LOW_32 = np.int64(0xFFFFFFFF)
_SEED = np.uint64(0)


@plain_kernel
def character_bytes(data, i, end):
    """Bytes of the UTF-8 character at data[i], as its first byte says and as far as there are any."""
    b = data[i]
    n = 1 if b < 0xC0 else 2 if b < 0xE0 else 3 if b < 0xF0 else 4
    return min(n, end - i)


@plain_kernel
def segment(data, start, end, nodes, ids, unknown_score, unk_id, byte_ids, best, node_at, begin_at, out, at):
    """The best pieces of data[start:end] into out[at:]; returns their number, or NO_UNKNOWN for a character that the
    model cannot spell when there is no unk_id (< 0). ``best`` (float64), ``node_at`` and ``begin_at`` (int32): scratch
    of at least end - start + 1."""
    n = end - start
    best[0] = 0.0
    for j in range(1, n + 1):
        node_at[j] = _UNREACHED
    i = np.int64(0)
    while i < n:
        score = best[i]
        single = character_bytes(data, start + i, end)
        has_single = False
        node = np.int64(0)
        j = i
        while j < n:
            t = np.int64(nodes[node].base) + np.int64(data[start + j])
            if nodes[t].check != node:
                break
            node = t
            j += 1
            weight = nodes[t].weight
            if weight != _NONE:
                if j - i == single:
                    has_single = True
                if node_at[j] == _UNREACHED or score + weight > best[j]:
                    best[j] = score + weight
                    node_at[j] = t
                    begin_at[j] = i
        if not has_single:
            j = i + single
            if node_at[j] == _UNREACHED or score + unknown_score > best[j]:
                best[j] = score + unknown_score
                node_at[j] = _UNKNOWN
                begin_at[j] = i
        i += single

    # Once backwards for the number of tokens, once more to write them from the end.
    m = np.int64(0)
    for write in range(2):
        tail = at + m
        m = np.int64(0)
        fused = False
        j = n
        while j > 0:
            i = np.int64(begin_at[j])
            if node_at[j] != _UNKNOWN:
                m += 1
                if write:
                    out[tail - m] = ids[node_at[j]]
                fused = False
            else:
                spelled = True
                for k in range(i, j):
                    spelled = spelled and byte_ids[data[start + k]] >= 0
                if spelled:
                    for k in range(j - 1, i - 1, -1):
                        m += 1
                        if write:
                            out[tail - m] = byte_ids[data[start + k]]
                    fused = False
                elif unk_id < 0:
                    return np.int64(NO_UNKNOWN)
                elif not fused:
                    m += 1
                    if write:
                        out[tail - m] = unk_id
                    fused = True
            j = i
    return m


@kernel
def segment_words(
    data,
    word_ends,
    document_ends,
    first_byte,
    nodes,
    ids,
    unknown_score,
    unk_id,
    byte_ids,
    slots,
    cached_bytes,
    cached_tokens,
    state,
    out,
    token_ends,
):
    """Encode all words. ``out`` (int32) must hold as many elements as there are bytes; ``token_ends`` (int64 [n])
    receives the number of tokens up to and including each document. Returns the number of tokens, or -1 - w for the
    first word w that holds a character without a token."""
    room = CACHED_WORD + 1
    best = np.empty(room, np.float64)
    node_at = np.empty(room, np.int32)
    begin_at = np.empty(room, np.int32)
    mask = len(slots) - 1
    most = len(slots) * 2 // 3
    at = np.int64(0)
    start = np.int64(first_byte)
    w = 0
    for d in range(len(document_ends)):
        while w < document_ends[d]:
            end = word_ends[w]
            n = end - start
            if n >= room:
                room = 2 * n
                best = np.empty(room, np.float64)
                node_at = np.empty(room, np.int32)
                begin_at = np.empty(room, np.int32)
            q = np.int64(-1)
            h = np.int64(1)
            if n <= CACHED_WORD:
                h = np.int64(hash_bytes(data, start, end, _SEED))
                if h == 0:
                    h = 1
                q = h & mask
                while slots[q, 0] != 0:
                    if slots[q, 0] == h:
                        a = slots[q, 1]
                        if slots[q, 2] >> 32 == n and same_bytes(data, start, cached_bytes, a, n):
                            break
                    q = (q + 1) & mask
            if q >= 0 and slots[q, 0] != 0:
                a = slots[q, 3]
                m = slots[q, 2] & _LOW_32
                for k in range(m):
                    out[at + k] = cached_tokens[a + k]
            else:
                state[STATE_MISSES] += 1
                m = segment(
                    data, start, end, nodes, ids, unknown_score, unk_id, byte_ids, best, node_at, begin_at, out, at
                )
                if m < 0:
                    return -1 - np.int64(w)
                if q >= 0:
                    if (
                        state[STATE_ENTRIES] >= most
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
                    for k in range(n):
                        cached_bytes[a + k] = data[start + k]
                    b = state[STATE_TOKENS]
                    for k in range(m):
                        cached_tokens[b + k] = out[at + k]
                    slots[q, 0] = h
                    slots[q, 1] = a
                    slots[q, 2] = (n << 32) | m
                    slots[q, 3] = b
                    state[STATE_ENTRIES] += 1
                    state[STATE_BYTES] += n
                    state[STATE_TOKENS] += m
            at += m
            w += 1
            start = end
        token_ends[d] = at
    return at
