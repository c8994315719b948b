"""Numba kernel that says whether documents are valid UTF-8 (Unicode 16, table 3-7), 64 bytes at a time: of each byte one bit
says what it is, and shifted masks say what has to follow."""

import numpy as np

from shardpiece.intrinsics import mask_of_range
from shardpiece.kernel_cache import inlined_kernel, kernel

_0, _1, _2, _3, _61, _62, _63 = (np.uint64(n) for n in (0, 1, 2, 3, 61, 62, 63))
_NOTHING = np.uint8(0)


@inlined_kernel
def mask(data, i, first, n):
    """The bytes from ``first`` on, n of them."""
    return mask_of_range(data, i, _NOTHING, np.uint8(first), np.uint8(n))


@inlined_kernel
def check_block(data, i, due, leads):
    """(whether the 64 bytes from i on are right so far, continuations due at the beginning of the next block, which of the
    leads with a narrower second byte stands at the end of this one)."""
    high = mask(data, i, 0x80, 128)
    if high == _0:
        return due == _0, _0, _0
    continued = mask(data, i, 0x80, 0x40)
    four, three, two = mask(data, i, 0xF0, 5), mask(data, i, 0xE0, 16), mask(data, i, 0xC2, 30)
    more, most = three | four, four
    begun = two | more
    fine = (begun | continued) == high and ((begun << _1) | (more << _2) | (most << _3) | due) == continued
    due = (begun >> _63) | (more >> _62) | (most >> _61)
    e0, ed, f0, f4 = mask(data, i, 0xE0, 1), mask(data, i, 0xED, 1), mask(data, i, 0xF0, 1), mask(data, i, 0xF4, 1)
    if (e0 | ed | f0 | f4 | leads) != _0:
        low_32, low_16 = mask(data, i, 0x80, 32), mask(data, i, 0x80, 16)
        wrong = ((e0 << _1) | (leads & _1)) & low_32
        wrong |= ((ed << _1) | ((leads >> _1) & _1)) & ~low_32
        wrong |= ((f0 << _1) | ((leads >> _2) & _1)) & low_16
        wrong |= ((f4 << _1) | ((leads >> _3) & _1)) & ~low_16
        fine = fine and wrong == _0
        leads = (e0 >> _63) | ((ed >> _63) << _1) | ((f0 >> _63) << _2) | ((f4 >> _63) << _3)
    return fine, due, leads


@kernel
def is_utf8(data, offsets):
    """Whether each document data[offsets[d]:offsets[d + 1]] is. ``data`` uint8, ``offsets`` int64 [documents + 1]."""
    i, stop = np.int64(offsets[0]), np.int64(offsets[len(offsets) - 1])
    due = leads = _0
    while i + 64 <= stop:
        fine, due, leads = check_block(data, i, due, leads)
        if not fine:
            return False
        i += 64
    rest = np.zeros(64, np.uint8)  # at least one zero at the end, in front of which a character must be whole
    for k in range(stop - i):
        rest[k] = data[i + k]
    fine, due, leads = check_block(rest, np.int64(0), due, leads)
    inside = 0
    for d in range(len(offsets) - 1):
        inside += offsets[d] < stop and (data[offsets[d]] & 0xC0) == 0x80
    return fine and inside == 0
