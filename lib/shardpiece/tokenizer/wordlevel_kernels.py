"""Numba kernels of the word-level encoder: each word is looked up as a whole.

``slots`` (int32, a power of two of them) holds ids by the hash of their words, -1 where it is empty; the words of the
vocabulary lie in ``vocab_data`` (uint8), word i at vocab_data[vocab_starts[i]:vocab_starts[i + 1]] (int64 [n + 1]).
"""

import numpy as np

from shardpiece.intrinsics import hash_bytes, same_bytes
from shardpiece.kernel_cache import kernel, plain_kernel

_SEED = np.uint64(0)


@plain_kernel
def find_word(data, start, end, slots, vocab_data, vocab_starts):
    """The slot of a word, or the empty one where it would stand."""
    mask = len(slots) - 1
    q = np.int64(hash_bytes(data, start, end, _SEED)) & mask
    while slots[q] >= 0:
        a = vocab_starts[slots[q]]
        n = vocab_starts[slots[q] + 1] - a
        if n == end - start and same_bytes(data, start, vocab_data, a, n):
            break
        q = (q + 1) & mask
    return q


@kernel
def fill_slots(slots, vocab_data, vocab_starts):
    """Enter every word that is not empty; the caller guarantees that they fill half of ``slots`` at most."""
    for i in range(len(vocab_starts) - 1):
        if vocab_starts[i + 1] > vocab_starts[i]:
            slots[find_word(vocab_data, vocab_starts[i], vocab_starts[i + 1], slots, vocab_data, vocab_starts)] = i


@kernel
def encode_words(data, word_ends, document_ends, first_byte, slots, vocab_data, vocab_starts, unk, out, token_ends):
    """The id of each word, ``unk`` where it has none, into ``out`` (int32 [words]). ``data`` uint8, ``word_ends`` and
    ``document_ends`` int64. ``token_ends`` (int64 [documents]) receives the number of tokens up to and including each
    document. Returns the number of tokens."""
    start = np.int64(first_byte)
    w = 0
    for d in range(len(document_ends)):
        while w < document_ends[d]:
            end = word_ends[w]
            found = slots[find_word(data, start, end, slots, vocab_data, vocab_starts)]
            out[w] = found if found >= 0 else unk
            w += 1
            start = end
        token_ends[d] = w
    return w
