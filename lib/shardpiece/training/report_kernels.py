"""Numba kernels that measure what a tokenizer makes of a word table."""

from shardpiece.kernel_cache import kernel


@kernel
def add_frequencies(tokens, offsets, counts, frequencies):
    """Add to ``frequencies`` (int64, by id) how often each token occurs: word w is tokens[offsets[w]:offsets[w + 1]] (int32,
    int64) and occurs counts[w] (int64) times."""
    for w in range(len(counts)):
        for i in range(offsets[w], offsets[w + 1]):
            frequencies[tokens[i]] += counts[w]
