"""Numba kernel of the word counter: an open-addressing hash table from (group, word bytes) to a count.

``slots`` (uint64, a power of two) holds 0 or tag << 32 | (index + 1), the tag being the upper half of the hash; words
are numbered in order of arrival, and word w has its bytes in ``arena[starts[w]:starts[w + 1]]``, its 64-bit hash in
``hashes[w]``, its group in ``groups[w]`` and its count in ``counts[w]``.
"""

import numpy as np

from shardpiece.intrinsics import MIX_2, hash_bytes, same_bytes
from shardpiece.kernel_cache import kernel

STATE_WORDS = 0
STATE_NEXT = 1
STATE_LONG_WORDS = 2
STATE_LONG_BYTES = 3
STATE_SIZE = 4

_SHIFT_32 = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)


@kernel
def count_words(
    data,
    word_ends,
    document_ends,
    document_groups,
    first_byte,
    max_word_bytes,
    slots,
    arena,
    starts,
    hashes,
    groups,
    counts,
    state,
):
    """Count from word state[STATE_NEXT] on; returns True when all are counted, False when the table is full
    (two thirds of the slots, all word numbers, or the arena), with state[STATE_NEXT] at the word to resume from.

    Words of more than ``max_word_bytes`` are not counted but added up in STATE_LONG_WORDS and STATE_LONG_BYTES.
    """
    mask = len(slots) - 1
    room = min(len(counts), len(slots) * 2 // 3)
    used = state[STATE_WORDS]
    w = state[STATE_NEXT]
    start = word_ends[w - 1] if w > 0 else first_byte
    d = np.searchsorted(document_ends, w, side="right")
    while w < len(word_ends):
        while w >= document_ends[d]:
            d += 1
        end = word_ends[w]
        n = end - start
        if n > max_word_bytes:
            state[STATE_LONG_WORDS] += 1
            state[STATE_LONG_BYTES] += n
            w += 1
            start = end
            continue
        group = document_groups[d]
        h = hash_bytes(data, start, end, np.uint64(group) * MIX_2)
        tag = h >> _SHIFT_32
        q = np.int64(h) & mask
        while True:
            slot = slots[q]
            if slot == 0:
                if used >= room or starts[used] + n > len(arena):
                    state[STATE_WORDS] = used
                    state[STATE_NEXT] = w
                    return False
                a = starts[used]
                for i in range(n):
                    arena[a + i] = data[start + i]
                starts[used + 1] = a + n
                hashes[used] = h
                groups[used] = group
                counts[used] = 1
                used += 1
                slots[q] = (tag << _SHIFT_32) | np.uint64(used)
                break
            if slot >> _SHIFT_32 == tag:
                i = np.int64(slot & _LOW_32) - 1
                a = starts[i]
                if groups[i] == group and starts[i + 1] - a == n and same_bytes(data, start, arena, a, n):
                    counts[i] += 1
                    break
            q = (q + 1) & mask
        w += 1
        start = end
    state[STATE_WORDS] = used
    state[STATE_NEXT] = w
    return True


@kernel
def fill_slots(slots, hashes, n):
    """Enter words 0..n-1 into empty slots (after the table has grown)."""
    mask = len(slots) - 1
    for i in range(n):
        h = hashes[i]
        q = np.int64(h) & mask
        while slots[q] != 0:
            q = (q + 1) & mask
        slots[q] = ((h >> _SHIFT_32) << _SHIFT_32) | np.uint64(i + 1)
