"""How often every token occurs."""

import numpy as np

from shardpiece.intrinsics import get
from shardpiece.kernel_cache import plain_kernel

# Ids that are checked, and then counted while they are in the processor's first cache.
_BLOCK = 4096


@plain_kernel
def count_tokens(tokens, counts):
    """Add the number of times that each id occurs in ``tokens`` (uint16, uint32 or int32) to ``counts`` (int64 [n]).

    Returns -1, or where an id is that is not below n; then what precedes it may have been counted."""
    for start in range(0, len(tokens), _BLOCK):
        end = min(start + _BLOCK, len(tokens))
        most = np.uint32(0)
        # Unsigned, negative ids are the largest of all: no branch in the loop.
        for i in range(start, end):
            most = max(most, np.uint32(get(tokens, i)))
        if most >= len(counts):
            for i in range(start, end):
                if np.uint32(get(tokens, i)) >= len(counts):
                    return i
        for i in range(start, end):
            counts[np.uint32(get(tokens, i))] += 1
    return -1
