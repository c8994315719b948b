"""Ids copied into a shard's own type, with what belongs around each document."""

import numpy as np

from shardpiece.intrinsics import get, put
from shardpiece.kernel_cache import plain_kernel


@plain_kernel
def append_documents(tokens, offsets, text_offsets, keep_empty, before, after, vocab_size, out, at, ends, documents):
    """Copy document d, tokens[offsets[d]:offsets[d + 1]], to ``out`` from ``at`` on, ``before`` in front of it and ``after``
    behind; without ``keep_empty`` only documents with text, by text_offsets. ``ends`` (int64) receives, from ``documents``
    on, where each one ends in ``out``.

    tokens, before, after: int32; offsets, text_offsets: int64 [n + 1]; out: int32, uint16 or uint32, with room for all of
    it. Returns (where the last one ends, documents so far), or (-1, id) for an id that is not below ``vocab_size``, which
    must fit into ``out``.
    """
    most = np.uint32(0)
    for d in range(len(offsets) - 1):
        if not keep_empty and text_offsets[d] == text_offsets[d + 1]:
            continue
        for x in before:
            out[at] = x
            at += 1
        a, n = np.int64(offsets[d]), np.int64(offsets[d + 1] - offsets[d])
        # Unsigned, negative ids are the largest of all: no branch in the loop.
        for i in range(n):
            x = np.uint32(get(tokens, a + i))
            most = max(most, x)
            put(out, at + i, out.dtype.type(x))
        if most >= vocab_size:
            for i in range(n):
                if not 0 <= tokens[a + i] < vocab_size:
                    return np.int64(-1), np.int64(tokens[a + i])
        at += n
        for x in after:
            out[at] = x
            at += 1
        ends[documents] = at
        documents += 1
    return at, documents
