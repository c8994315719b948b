"""Numba kernels for the plain edits of documents: strip, collapse, prepend, replace; see ``character_kernels``."""

import numpy as np

from shardpiece.kernel_cache import kernel
from shardpiece.text.normalization.character_kernels import SLACK, decode, with_room

_SPACE = 0x20


@kernel
def is_white(c):
    """Rust's char::is_whitespace."""
    if c < 0x80:
        return c == 0x20 or 0x09 <= c <= 0x0D
    return (
        c == 0x85
        or c == 0xA0
        or c == 0x1680
        or 0x2000 <= c <= 0x200A
        or c == 0x2028
        or c == 0x2029
        or c == 0x202F
        or c == 0x205F
        or c == 0x3000
    )


@kernel
def strip_documents(data, offsets, left, right):
    n = len(offsets) - 1
    new_offsets = np.zeros(n + 1, np.int64)
    out = np.empty(np.int64(offsets[n]) - np.int64(offsets[0]), np.uint8)
    j = np.int64(0)
    for d in range(n):
        start = np.int64(offsets[d])
        end = np.int64(offsets[d + 1])
        while left and start < end:
            c, width = decode(data, start)
            if not is_white(c):
                break
            start += width
        while right and start < end:
            p = end - 1
            while p > start and (data[p] & 0xC0) == 0x80:
                p -= 1
            c, width = decode(data, p)
            if not is_white(c):
                break
            end = p
        for k in range(end - start):
            out[j + k] = data[start + k]
        j += end - start
        new_offsets[d + 1] = j
    return out[:j], new_offsets


@kernel
def collapse_documents(data, offsets):
    """Runs of U+0020 become one."""
    n = len(offsets) - 1
    new_offsets = np.zeros(n + 1, np.int64)
    out = np.empty(np.int64(offsets[n]) - np.int64(offsets[0]), np.uint8)
    j = np.int64(0)
    for d in range(n):
        space = False
        for i in range(np.int64(offsets[d]), np.int64(offsets[d + 1])):
            b = data[i]
            if not (space and b == _SPACE):
                out[j] = b
                j += 1
            space = b == _SPACE
        new_offsets[d + 1] = j
    return out[:j], new_offsets


@kernel
def prepend_documents(data, offsets, text):
    """Empty documents stay empty."""
    n = len(offsets) - 1
    new_offsets = np.zeros(n + 1, np.int64)
    out = np.empty(np.int64(offsets[n]) - np.int64(offsets[0]) + n * len(text), np.uint8)
    j = np.int64(0)
    for d in range(n):
        start = np.int64(offsets[d])
        length = np.int64(offsets[d + 1]) - start
        if length > 0:
            for k in range(len(text)):
                out[j + k] = text[k]
            j += len(text)
            for k in range(length):
                out[j + k] = data[start + k]
            j += length
        new_offsets[d + 1] = j
    return out[:j], new_offsets


@kernel
def replace_documents(data, offsets, pattern, content):
    """Replace a text that is not empty, from the left, without overlaps."""
    n = len(offsets) - 1
    new_offsets = np.zeros(n + 1, np.int64)
    stop = np.int64(offsets[n])
    i = np.int64(offsets[0])
    out = np.empty(stop - i + SLACK, np.uint8)
    j = np.int64(0)
    length = len(pattern)
    first = pattern[0]
    for d in range(n):
        end = np.int64(offsets[d + 1])
        while i < end:
            b = data[i]
            if b == first and i + length <= end:
                k = 1
                while k < length and data[i + k] == pattern[k]:
                    k += 1
                if k == length:
                    i += length
                    if j + len(content) + stop - i + SLACK > len(out):
                        out = with_room(out, j, j + len(content) + stop - i + SLACK)
                    for k in range(len(content)):
                        out[j + k] = content[k]
                    j += len(content)
                    continue
            out[j] = b
            i += 1
            j += 1
        new_offsets[d + 1] = j
    return out[:j], new_offsets


@kernel
def replace_words(data, start, ends, document_ends, replaced, content):
    """The words data[ends[w - 1]:ends[w]], the first from ``start`` on, one after the other, with ``content`` for those that
    are ``replaced`` (bool). ``document_ends``: words up to and including each document."""
    size = np.int64(0)
    position = np.int64(start)
    for w in range(len(ends)):
        size += len(content) if replaced[w] else ends[w] - position
        position = ends[w]
    out = np.empty(size + SLACK, np.uint8)
    new_offsets = np.zeros(len(document_ends) + 1, np.int64)
    position = np.int64(start)
    j = np.int64(0)
    w = 0
    for d in range(len(document_ends)):
        while w < document_ends[d]:
            if replaced[w]:
                for k in range(len(content)):
                    out[j + k] = content[k]
                j += len(content)
            else:
                for i in range(position, ends[w]):
                    out[j + i - position] = data[i]
                j += ends[w] - position
            position = ends[w]
            w += 1
        new_offsets[d + 1] = j
    return out[:j], new_offsets
