"""Numba kernels that find special tokens in documents and cut documents there.

Tokens are kept in a trie: ``children`` (int32 [nodes, byte classes]) gives the node below a node, -1 for none;
``byte_class`` (uint8 [256]) is 0 for bytes that no token has; ``token_at`` (int32 [nodes]) the token that ends in a node,
-1 for none. Node 0 is the root.
"""

from shardpiece.kernel_cache import plain_kernel


@plain_kernel
def find_tokens(data, offsets, byte_class, children, token_at, documents, starts, ends, tokens):
    """From left to right, the longest token at each place, none across two documents. Writes as many as there is room
    for and returns the number of all. Steps: one per byte, and one per byte of every token's beginning."""
    n = 0
    root = children[0]
    for d in range(len(offsets) - 1):
        position = offsets[d]
        end = offsets[d + 1]
        while position < end:
            if root[byte_class[data[position]]] < 0:
                position += 1
                continue
            node = 0
            token = -1
            token_end = position
            i = position
            while i < end:
                node = children[node, byte_class[data[i]]]
                if node < 0:
                    break
                i += 1
                if token_at[node] >= 0:
                    token = token_at[node]
                    token_end = i
            if token < 0:
                position += 1
                continue
            if n < len(tokens):
                documents[n] = d
                starts[n] = position
                ends[n] = token_end
                tokens[n] = token
            n += 1
            position = token_end
    return n


@plain_kernel
def cut_pieces(data, offsets, documents, starts, ends, out, piece_offsets, owners):
    """Copy what stands between tokens to ``out``, a piece before each token and one at the end of every document."""
    t = 0
    p = 0
    at = 0
    for d in range(len(offsets) - 1):
        position = offsets[d]
        more = True
        while more:
            more = t < len(documents) and documents[t] == d
            end = starts[t] if more else offsets[d + 1]
            for i in range(position, end):
                out[at] = data[i]
                at += 1
            owners[p] = d
            p += 1
            piece_offsets[p] = at
            if more:
                position = ends[t]
                t += 1
