"""Numba kernels that normalize whole batches of documents of valid UTF-8.

Every kernel takes ``data`` and ``offsets`` of the batch and returns new ones. Tables over the code points have two
stages (see ``tables``): ``values[pages[c >> 8] << 8 | c & 255]``. The output starts as long as the input; the
loops keep room for at least the bytes that are left to read plus SLACK, so copying needs no check, and ``with_room``
restores that before anything that grows (asked for only where it is needed: a call in a loop costs reference counts).
"""

import numpy as np

from shardpiece.intrinsics import load64, trailing_zeros
from shardpiece.kernel_cache import kernel, plain_kernel

SLACK = 64
SURROUND = -1
"""In a character map: the character itself between two spaces."""

SYLLABLES = 1
"""The row of the Hangul syllables, which decompose by a formula."""

_HIGH_BITS = np.uint64(0x8080808080808080)
_SPACE = 0x20


@plain_kernel
def decode(data, i):
    """(code point, width in bytes) of the character at ``i``; valid UTF-8 is trusted, but for where it ends."""
    b = np.int64(data[i])
    n = len(data)
    if b < 0x80:
        return b, np.int64(1)
    if b < 0xE0:
        if i + 2 > n:
            return np.int64(0xFFFD), np.int64(1)
        return ((b & 0x1F) << 6) | (np.int64(data[i + 1]) & 0x3F), np.int64(2)
    if b < 0xF0:
        if i + 3 > n:
            return np.int64(0xFFFD), np.int64(1)
        return ((b & 0x0F) << 12) | ((np.int64(data[i + 1]) & 0x3F) << 6) | (np.int64(data[i + 2]) & 0x3F), np.int64(3)
    if i + 4 > n:
        return np.int64(0xFFFD), np.int64(1)
    c = (
        ((b & 0x07) << 18)
        | ((np.int64(data[i + 1]) & 0x3F) << 12)
        | ((np.int64(data[i + 2]) & 0x3F) << 6)
        | (np.int64(data[i + 3]) & 0x3F)
    )
    return (c if c < 0x110000 else np.int64(0xFFFD)), np.int64(4)


@kernel
def encode(c, out, j):
    """Write a code point as UTF-8; where it ends."""
    if c < 0x80:
        out[j] = c
        return j + 1
    if c < 0x800:
        out[j] = 0xC0 | (c >> 6)
        out[j + 1] = 0x80 | (c & 0x3F)
        return j + 2
    if c < 0x10000:
        out[j] = 0xE0 | (c >> 12)
        out[j + 1] = 0x80 | ((c >> 6) & 0x3F)
        out[j + 2] = 0x80 | (c & 0x3F)
        return j + 3
    out[j] = 0xF0 | (c >> 18)
    out[j + 1] = 0x80 | ((c >> 12) & 0x3F)
    out[j + 2] = 0x80 | ((c >> 6) & 0x3F)
    out[j + 3] = 0x80 | (c & 0x3F)
    return j + 4


@kernel
def with_room(out, used, needed):
    """``out``, or a longer copy of its first ``used`` bytes when it has not ``needed`` bytes."""
    if needed <= len(out):
        return out
    longer = np.empty(needed + needed // 4 + SLACK, np.uint8)
    longer[:used] = out[:used]
    return longer


@plain_kernel
def ascii_end(data, i, end):
    """Where the ASCII bytes from ``i`` end."""
    while i + 8 <= end:
        high = load64(data, i) & _HIGH_BITS
        if high != 0:
            return i + (trailing_zeros(high) >> 3)
        i += 8
    while i < end and data[i] < 0x80:
        i += 1
    return i


@kernel
def map_changes(data, start, end, ascii_map, pages, values):
    """Whether a character map changes anything in data[start:end]."""
    i = start
    while i < end:
        if data[i] < 0x80:
            run = ascii_end(data, i, min(end, i + 4096))
            changed = False
            while i < run:
                changed |= ascii_map[data[i]] != data[i]
                i += 1
            if changed:
                return True
            continue
        c, width = decode(data, i)
        if values[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)] != 0:
            return True
        i += width
    return False


@kernel
def map_characters(data, offsets, ascii_map, pages, values, target_offsets, targets):
    """Replace each character by the target that its value names (0: itself, SURROUND, else target value - 1).

    ``ascii_map`` (uint8 [128]): what an ASCII byte becomes where that is one ASCII byte, else 0xFF.
    """
    n = len(offsets) - 1
    new_offsets = np.zeros(n + 1, np.int64)
    stop = np.int64(offsets[n])
    i = np.int64(offsets[0])
    out = np.empty(stop - i + SLACK, np.uint8)
    j = np.int64(0)
    for d in range(n):
        end = np.int64(offsets[d + 1])
        while i < end:
            if data[i] < 0x80:
                run = ascii_end(data, i, end)
                while i < run:
                    mapped = ascii_map[data[i]]
                    if mapped >= 0x80:
                        break
                    out[j] = mapped
                    i += 1
                    j += 1
                if i == run:
                    continue
            c, width = decode(data, i)
            value = values[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)]
            if value == 0:
                for k in range(width):
                    out[j + k] = data[i + k]
                j += width
            elif value == SURROUND:
                if j + 2 + stop - i + SLACK > len(out):
                    out = with_room(out, j, j + 2 + stop - i + SLACK)
                out[j] = _SPACE
                for k in range(width):
                    out[j + 1 + k] = data[i + k]
                out[j + 1 + width] = _SPACE
                j += width + 2
            else:
                first = np.int64(target_offsets[value - 1])
                length = np.int64(target_offsets[value]) - first
                if j + length + stop - i + SLACK > len(out):
                    out = with_room(out, j, j + length + stop - i + SLACK)
                for k in range(length):
                    out[j + k] = targets[first + k]
                j += length
            i += width
        new_offsets[d + 1] = j
    return out[:j], new_offsets


@kernel
def first_unstable(data, i, end, pages, rows, stable):
    """Where the first character is that may change or change places, or compose with the one before; else ``end``."""
    while i < end:
        i = ascii_end(data, i, end)
        while i < end and data[i] >= 0x80:
            c, width = decode(data, i)
            row = rows[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)]
            if row != 0 and not stable[row]:
                return i
            i += width
    return i


@kernel
def composite(pairs, composites, first, second):
    """What two characters compose to, or -1."""
    if 0x1100 <= first < 0x1113 and 0x1161 <= second < 0x1176:
        return 0xAC00 + ((first - 0x1100) * 21 + second - 0x1161) * 28
    if 0xAC00 <= first < 0xD7A4 and 0x11A7 < second < 0x11C3 and (first - 0xAC00) % 28 == 0:
        return first + second - 0x11A7
    key = (first << 21) | second
    low = np.int64(0)
    high = np.int64(len(pairs))
    while low < high:
        middle = (low + high) >> 1
        if pairs[middle] < key:
            low = middle + 1
        else:
            high = middle
    if low < len(pairs) and pairs[low] == key:
        return np.int64(composites[low])
    return np.int64(-1)


@kernel
def sort_marks(codes, classes, start, end):
    """Sort a run of marks by combining class, stably: by insertion when it is short, else by counting."""
    if end - start <= 24:
        for a in range(start + 1, end):
            c = codes[a]
            k = classes[a]
            b = a
            while b > start and classes[b - 1] > k:
                codes[b] = codes[b - 1]
                classes[b] = classes[b - 1]
                b -= 1
            codes[b] = c
            classes[b] = k
        return
    place = np.zeros(257, np.int64)
    for a in range(start, end):
        place[np.int64(classes[a]) + 1] += 1
    for k in range(256):
        place[k + 1] += place[k]
    old_codes = codes[start:end].copy()
    old_classes = classes[start:end].copy()
    for a in range(end - start):
        k = np.int64(old_classes[a])
        codes[start + place[k]] = old_codes[a]
        classes[start + place[k]] = old_classes[a]
        place[k] += 1


@kernel
def compose_segment(codes, classes, n, pairs, composites):
    """Canonical composition in place; the new length."""
    made = 0
    starter = -1
    last = -1
    for a in range(n):
        c = np.int64(codes[a])
        k = np.int64(classes[a])
        if starter >= 0 and last < k and (last < 0 or k > 0):
            both = composite(pairs, composites, np.int64(codes[starter]), c)
            if both >= 0:
                codes[starter] = both
                continue
        if k > 0:
            last = k
        else:
            starter = made
            last = -1
        codes[made] = c
        made += 1
    return made


@kernel
def longer_scratch(codes, classes):
    more_codes = np.empty(2 * len(codes), np.int32)
    more_classes = np.empty(2 * len(codes), np.uint8)
    more_codes[: len(codes)] = codes
    more_classes[: len(codes)] = classes
    return more_codes, more_classes


@kernel
def decompose_documents(
    data, offsets, pages, rows, stable, row_offsets, row_codes, row_classes, compose, pairs, composites
):
    """NFC, NFD, NFKC or NFKD, by the tables given.

    Text is copied up to a character that is not stable. From the character before it (which a mark may change) to the
    next stable one it is decomposed, sorted and, if ``compose``, composed.
    """
    n = len(offsets) - 1
    new_offsets = np.zeros(n + 1, np.int64)
    stop = np.int64(offsets[n])
    i = np.int64(offsets[0])
    out = np.empty(stop - i + SLACK, np.uint8)
    codes = np.empty(256, np.int32)
    classes = np.empty(256, np.uint8)
    j = np.int64(0)
    for d in range(n):
        end = np.int64(offsets[d + 1])
        while i < end:
            p = first_unstable(data, i, end, pages, rows, stable)
            unstable = p
            if p < end and p > i and compose:
                p -= 1
                while p > i and (data[p] & 0xC0) == 0x80:
                    p -= 1
            length = p - i
            for k in range(length):
                out[j + k] = data[i + k]
            j += length
            i = p
            if i == end:
                break
            size = 0
            marks = -1
            while i < end:
                c, width = decode(data, i)
                row = np.int64(rows[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)])
                if i > unstable and (row == 0 or stable[row]):
                    break
                i += width
                while size + 32 > len(codes):
                    codes, classes = longer_scratch(codes, classes)
                if row == SYLLABLES:
                    c -= 0xAC00
                    codes[size] = 0x1100 + c // 588
                    codes[size + 1] = 0x1161 + c % 588 // 28
                    codes[size + 2] = 0x11A7 + c % 28
                    classes[size : size + 3] = 0
                    first = size
                    size += 3 if c % 28 else 2
                elif row == 0:
                    codes[size] = c
                    classes[size] = 0
                    first = size
                    size += 1
                else:
                    first = size
                    for k in range(row_offsets[row], row_offsets[row + 1]):
                        codes[size] = row_codes[k]
                        classes[size] = row_classes[k]
                        size += 1
                for k in range(first, size):
                    if classes[k] == 0:
                        if marks >= 0:
                            sort_marks(codes, classes, marks, k)
                            marks = -1
                    elif marks < 0:
                        marks = k
            if marks >= 0:
                sort_marks(codes, classes, marks, size)
            if compose:
                size = compose_segment(codes, classes, size, pairs, composites)
            if j + 4 * size + stop - i + SLACK > len(out):
                out = with_room(out, j, j + 4 * size + stop - i + SLACK)
            for k in range(size):
                j = encode(np.int64(codes[k]), out, j)
        new_offsets[d + 1] = j
    return out[:j], new_offsets
