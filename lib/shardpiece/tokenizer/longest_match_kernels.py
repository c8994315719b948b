"""Numba kernels of the WordPiece encoder: greedy longest-match-first over a trie of the vocabulary.

Trie: ``slots`` (uint64, a power of two of them) is an open-addressing table of its edges, and a node is the number of the
slot that holds the edge into it: one load per byte in most cases. An edge is (parent << 8 | byte) + 1, 0 where the slot
is empty. Parents beyond the table are the roots: one for pieces that begin a word, one for those that continue it.
``piece_at`` (int32 [slots]) is the id of the piece that ends at a node, -1 for none.
"""

import numpy as np

from shardpiece.intrinsics import MIX_1
from shardpiece.kernel_cache import kernel, plain_kernel

_SHIFT_32 = np.uint64(32)
_SHIFT_8 = np.uint64(8)
_ONE = np.uint64(1)


@plain_kernel
def find_edge(parent, byte, slots):
    """The slot of an edge, or the empty one where it would stand."""
    mask = np.uint64(len(slots) - 1)
    key = (np.uint64(parent) << _SHIFT_8 | np.uint64(byte)) + _ONE
    q = (key * MIX_1) >> _SHIFT_32 & mask
    while slots[q] != key and slots[q] != 0:
        q = (q + _ONE) & mask
    return np.int64(q)


@kernel
def add_pieces(data, starts, ids, root, slots, piece_at):
    """Enter the pieces data[starts[i]:starts[i + 1]] (uint8; int64 [n + 1]), none of them empty, with ids[i] (int32) below
    a root (0 or 1). The caller guarantees that the edges of all fill half of ``slots`` at most."""
    for i in range(len(ids)):
        node = np.int64(len(slots) + root)
        for j in range(starts[i], starts[i + 1]):
            q = find_edge(node, data[j], slots)
            if slots[q] == 0:
                slots[q] = (np.uint64(node) << _SHIFT_8 | np.uint64(data[j])) + _ONE
            node = q
        piece_at[node] = ids[i]


@plain_kernel
def longest_piece(data, i, end, root, slots, piece_at):
    """The longest piece that data[i:end] begins with, as (id, its end); (-1, i) when there is none."""
    node = np.int64(len(slots) + root)
    found = np.int32(-1)
    found_end = i
    while i < end:
        node = find_edge(node, data[i], slots)
        if slots[node] == 0:
            break
        i += 1
        if piece_at[node] >= 0:
            found = piece_at[node]
            found_end = i
    return found, found_end


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


@kernel
def encode_words(data, word_ends, document_ends, first_byte, slots, piece_at, most_characters, unk, out, token_ends):
    """Encode all words. ``data`` uint8, ``word_ends`` and ``document_ends`` int64. ``out`` (int32) must hold as many
    elements as there are bytes; ``token_ends`` (int64 [documents]) receives the number of tokens up to and including
    each document. A word that does not consist of pieces, or has more than ``most_characters``, becomes ``unk``.
    Returns the number of tokens."""
    at = np.int64(0)
    start = np.int64(first_byte)
    w = 0
    for d in range(len(document_ends)):
        while w < document_ends[d]:
            end = word_ends[w]
            first = at
            i = start
            if within(data, start, end, most_characters):
                root = 0
                while i < end:
                    piece, i = longest_piece(data, i, end, root, slots, piece_at)
                    if piece < 0:
                        break
                    out[at] = piece
                    at += 1
                    root = 1
            if i < end:
                out[first] = unk
                at = first + 1
            w += 1
            start = end
        token_ends[d] = at
    return at
