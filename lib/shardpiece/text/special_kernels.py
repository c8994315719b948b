"""Numba kernels that find special tokens in documents and cut documents there.

Tokens are kept in a trie: ``children`` (int32 [nodes, byte classes]) gives the node below a node, -1 for none;
``byte_class`` (uint8 [256]) is 0 for bytes that no token has; ``token_at`` (int32 [nodes]) the token that ends in a node,
-1 for none. Node 0 is the root. ``firsts`` and ``seconds``: uint8, the bytes that tokens have first and second; no seconds
where a token has none.
"""

import numpy as np

from shardpiece.intrinsics import get, mask_of_range, put, trailing_zeros
from shardpiece.kernel_cache import plain_kernel
from shardpiece.text.step_kernels import class_of_character

# Up to so many first bytes, comparing 64 bytes with each at once takes less time than looking up one after the other.
MOST_COMPARED = 16

# What a token asks of its surroundings, bits of ``flags``.
IGNORED = 1
SINGLE_WORD = 2
LEFT_STRIP = 4
RIGHT_STRIP = 8

# Classes of characters.
SPACE = 1
WORD = 2

_ONE = np.uint64(1)


@plain_kernel
def first_bytes(data, base, end, firsts, seconds, byte_class, root):
    """Bit k: whether a token may begin at base + k, of the 64 bytes there or those up to ``end``."""
    mask = np.uint64(0)
    if base + 65 <= end and len(firsts) <= MOST_COMPARED:
        for f in range(len(firsts)):
            mask |= mask_of_range(data, base, np.uint8(0), firsts[f], np.uint8(1))
        if mask == 0 or len(seconds) == 0:
            return mask
        behind = np.uint64(0)
        for f in range(len(seconds)):
            behind |= mask_of_range(data, base + 1, np.uint8(0), seconds[f], np.uint8(1))
        return mask & behind
    for k in range(min(64, end - base)):
        if root[byte_class[data[base + k]]] >= 0:
            mask |= _ONE << np.uint64(k)
    return mask


@plain_kernel
def find_tokens(data, offsets, firsts, seconds, byte_class, children, token_at, documents, starts, ends, tokens):
    """From left to right, the longest token at each place, none across two documents. Writes as many as there is room
    for and returns the number of all. Steps: a comparison per 64 bytes, and one per byte of every token's beginning."""
    n = 0
    root = children[0]
    for d in range(len(offsets) - 1):
        position = offsets[d]  # where the last token ends
        end = offsets[d + 1]
        base = position
        while base < end:
            mask = first_bytes(data, base, end, firsts, seconds, byte_class, root)
            while mask != 0:
                start = base + trailing_zeros(mask)
                mask &= mask - _ONE
                if start < position:
                    continue
                node = np.int64(0)
                token = np.int64(-1)
                token_end = start
                i = start
                while i < end:
                    node = np.int64(children[node, byte_class[data[i]]])
                    if node < 0:
                        break
                    i += 1
                    if token_at[node] >= 0:
                        token = np.int64(token_at[node])
                        token_end = i
                if token < 0:
                    continue
                if n < len(tokens):
                    documents[n] = d
                    starts[n] = start
                    ends[n] = token_end
                    tokens[n] = token
                n += 1
                position = token_end
            base = max(base + 64, position)
    return n


@plain_kernel
def class_at(data, position, end, class_of):
    """The class of the character that begins at ``position``, and its width."""
    if data[position] < 0x80:
        return np.int64(class_of[data[position]]), np.int64(1)
    c, width = class_of_character(data, position, end, class_of)
    return c, np.int64(width)


@plain_kernel
def character_before(data, position, begin):
    """Where the character begins that ends at ``position``."""
    position -= 1
    while position > begin and data[position] & 0xC0 == 0x80:
        position -= 1
    return position


@plain_kernel
def settle_tokens(
    data, offsets, documents, starts, ends, tokens, flags, class_of, owners, piece_starts, piece_ends, behind
):
    """Which of the tokens found count, with the white space that goes with them. Writes the pieces between them: one
    before each token that counts and one at the end of every document, of ``owners`` with the token ``behind`` it, -1 for
    none; returns their number. White space that a token has taken stays with it, but for tokens that begin inside."""
    p = 0
    t = 0
    for d in range(len(offsets) - 1):
        begin = offsets[d]
        end = offsets[d + 1]
        at = begin
        while t < len(documents) and documents[t] == d:
            start = starts[t]
            stop = ends[t]
            token = tokens[t]
            flag = flags[token]
            t += 1
            if flag != 0:
                if flag & IGNORED:
                    continue
                if flag & SINGLE_WORD:
                    if stop < end and class_at(data, stop, end, class_of)[0] == WORD:
                        continue
                    if start > begin and class_at(data, character_before(data, start, begin), end, class_of)[0] == WORD:
                        continue
                if flag & LEFT_STRIP:
                    while start > begin:
                        before = character_before(data, start, begin)
                        if class_at(data, before, end, class_of)[0] != SPACE:
                            break
                        start = before
                    start = max(start, at)
                if flag & RIGHT_STRIP:
                    while stop < end:
                        c, width = class_at(data, stop, end, class_of)
                        if c != SPACE:
                            break
                        stop += width
                if start >= stop:
                    continue  # the token before has taken all of it
            owners[p] = d
            piece_starts[p] = at
            piece_ends[p] = max(at, start)
            behind[p] = token
            p += 1
            at = stop
        owners[p] = d
        piece_starts[p] = at
        piece_ends[p] = end
        behind[p] = -1
        p += 1
    return p


@plain_kernel
def copy_pieces(data, piece_starts, piece_ends, out, offsets):
    """The pieces one after the other; offsets[p + 1]: where piece p ends."""
    at = 0
    for p in range(len(piece_starts)):
        start = piece_starts[p]
        n = piece_ends[p] - start
        for k in range(n):
            put(out, at + k, get(data, start + k))
        at += n
        offsets[p + 1] = at
