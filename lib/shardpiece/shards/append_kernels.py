"""Ids copied into a shard's own type, with what belongs around each document."""

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
    last = vocab_size - 1
    for d in range(len(offsets) - 1):
        if not keep_empty and text_offsets[d] == text_offsets[d + 1]:
            continue
        for x in before:
            out[at] = x
            at += 1
        a, n = offsets[d], offsets[d + 1] - offsets[d]
        # The sign of ``wrong`` is that of any id below 0 and of any beyond the last: no branch in the loop.
        wrong = 0
        for i in range(n):
            x = tokens[a + i]
            wrong |= x | (last - x)
            out[at + i] = x
        if wrong < 0:
            for i in range(n):
                if tokens[a + i] < 0 or tokens[a + i] > last:
                    return -1, int(tokens[a + i])
        at += n
        for x in after:
            out[at] = x
            at += 1
        ends[documents] = at
        documents += 1
    return at, documents
