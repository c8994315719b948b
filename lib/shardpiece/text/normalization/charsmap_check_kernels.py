"""Numba kernels that look through a charsmap's trie once, when it is read; see ``charsmap_kernels``."""

import numpy as np

from shardpiece.kernel_cache import kernel
from shardpiece.text.normalization.character_kernels import decode, encode
from shardpiece.text.normalization.charsmap_kernels import LABEL_MASK, NO_UNIT, VALUE_MASK, children

# In bytes. More would make a search at every position slow.
MAX_SOURCE = 1024

DAMAGED = -1
# What a character is to the sources.
SINGLE, STARTS, LATER, SPACE, ODD = 1, 2, 4, 8, 16
"""One by itself; the first of a longer one; a later one; one by itself that becomes a space; and of one that becomes nothing,
or something else with a space in it."""

NOT_SEEN = -1
OPEN = -2


@kernel
def first_bytes(units):
    """uint8 [256, 2] for ASCII bytes: whether one alone is a source, and whether sources go on after it with ASCII."""
    n = len(units)
    result = np.zeros((256, 2), np.uint8)
    if n == 0:
        return result
    root = children(np.int64(units[0]))
    for b in range(1, 128):
        node = root ^ b
        if node >= n or np.int64(units[node]) & LABEL_MASK != b:
            continue
        unit = np.int64(units[node])
        node ^= children(unit)
        if unit & 0x100 and node < n:
            result[b, 0] = 1
        for x in range(1, 128):
            if node ^ x < n and np.int64(units[node ^ x]) & LABEL_MASK == x:
                result[b, 1] = 1
    return result


@kernel
def first_characters(units):
    """uint8 over the code points: whether a source may begin with the character."""
    result = np.zeros(0x110000, np.uint8)
    n = len(units)
    if n == 0:
        return result
    root = children(np.int64(units[0]))
    raw = np.empty(4, np.uint8)
    for c in range(0x110000):
        width = encode(np.int64(c), raw, 0)
        node = root
        alive = np.uint8(1)
        for k in range(width):
            b = np.int64(raw[k])
            node ^= b
            if node >= n or np.int64(units[node]) & LABEL_MASK != b:
                alive = np.uint8(0)
                break
            node ^= children(np.int64(units[node]))
        result[c] = alive
    return result


@kernel
def find_values(units, values):
    """Collect the values that can be reached from the root; returns how many.

    DAMAGED when something else stands in a value's place, when there are more than ``values`` holds, or when a source
    could be longer than MAX_SOURCE bytes, as it is without bound where a block leads back to itself. Each block of
    children is visited once, however many ways lead there. A block beyond the end may still have children inside: they
    differ in the low byte alone.
    """
    n = len(units)
    count = 0
    if n == 0:
        return count
    height = np.full(n + 256, NOT_SEEN, np.int32)
    stack = np.empty((n + 257, 2), np.int64)
    root = children(np.int64(units[0]))
    if root >= n + 256:
        return count
    stack[0, 0] = root
    stack[0, 1] = 1
    height[root] = OPEN
    depth = 1
    while depth > 0:
        block = stack[depth - 1, 0]
        b = stack[depth - 1, 1]
        deeper = False
        while b < 256:
            node = block ^ b
            if node < n and np.int64(units[node]) & LABEL_MASK == b:
                unit = np.int64(units[node])
                node ^= children(unit)
                if node < n + 256:
                    if height[node] == OPEN:
                        return DAMAGED
                    if height[node] == NOT_SEEN:
                        stack[depth - 1, 1] = b
                        stack[depth, 0] = node
                        stack[depth, 1] = 1
                        height[node] = OPEN
                        depth += 1
                        deeper = True
                        break
            b += 1
        if deeper:
            continue
        # All blocks below are done.
        longest = np.int64(0)
        for b in range(1, 256):
            node = block ^ b
            if node < n and np.int64(units[node]) & LABEL_MASK == b:
                unit = np.int64(units[node])
                node ^= children(unit)
                below = np.int64(1)
                if node < n + 256:
                    below += np.int64(height[node])
                longest = max(longest, below)
                if unit & 0x100 and node < n:
                    if count >= len(values) or units[node] < NO_UNIT:
                        return DAMAGED
                    values[count] = np.int64(units[node]) & VALUE_MASK
                    count += 1
        if longest > MAX_SOURCE:
            return DAMAGED
        height[block] = longest
        depth -= 1
    return count


@kernel
def used_bytes(units):
    """uint8 [3, 256]: whether a source may begin with a byte, have it later, and go on behind it where it begins with it.
    The trie is one that ``find_values`` has checked."""
    n = len(units)
    result = np.zeros((3, 256), np.uint8)
    if n == 0:
        return result
    seen = np.zeros(n + 256, np.bool_)
    stack = np.empty(n + 257, np.int64)
    root = children(np.int64(units[0]))
    if root >= n + 256:
        return result
    stack[0] = root
    depth = 1
    while depth > 0:
        depth -= 1
        block = stack[depth]
        for b in range(1, 256):
            node = block ^ b
            if node >= n or np.int64(units[node]) & LABEL_MASK != b:
                continue
            result[0 if block == root else 1, b] = 1
            below = node ^ children(np.int64(units[node]))
            if block == root:
                for x in range(1, 256):
                    if below ^ x < n and np.int64(units[below ^ x]) & LABEL_MASK == x:
                        result[2, b] = 1
            if below < n + 256 and not seen[below]:
                seen[below] = True
                stack[depth] = below
                depth += 1
    return result


@kernel
def source_characters(units, targets, most):
    """uint8 over the code points: bits SINGLE, STARTS, LATER, SPACE and ODD of the sources that a character occurs in. All
    bits of all characters when there are more than ``most`` steps. The trie is one that ``find_values`` has checked."""
    n = len(units)
    result = np.zeros(0x110000, np.uint8)
    if n == 0:
        return result
    raw = np.empty(MAX_SOURCE + 4, np.uint8)
    blocks = np.empty(MAX_SOURCE + 2, np.int64)
    blocks[0] = children(np.int64(units[0]))
    raw[0] = 0
    depth = 0
    steps = 0
    while depth >= 0:
        b = np.int64(raw[depth]) + 1
        while b < 256:
            node = blocks[depth] ^ b
            if node < n and np.int64(units[node]) & LABEL_MASK == b:
                break
            b += 1
        steps += 1
        if steps > most:
            result[:] = 255
            return result
        if b == 256:
            depth -= 1
            continue
        raw[depth] = b
        unit = np.int64(units[node])
        node ^= children(unit)
        if unit & 0x100 and node < n:
            value = np.int64(units[node]) & VALUE_MASK
            mark_source(raw, depth + 1, targets, value, result)
        if node < n + 256 and depth + 1 < MAX_SOURCE:
            depth += 1
            blocks[depth] = node
            raw[depth] = 0
    return result


@kernel
def mark_source(raw, length, targets, value, result):
    """What ``source_characters`` says of the characters of the source raw[:length]."""
    spaces = np.int64(0)
    size = np.int64(0)
    while targets[value + size] != 0:
        spaces += np.int64(targets[value + size] == 0x20)
        size += 1
    i = 0
    while i < length:
        b = raw[i]
        width = 1 if b < 0xC0 else 2 if b < 0xE0 else 3 if b < 0xF0 else 4
        if i + width > length:
            return  # in the middle of a character, where no rule counts
        i += width
    i = 0
    while i < length:
        c, width = decode(raw[:length], i)
        bits = LATER if i > 0 else SINGLE if width == length else STARTS
        if size == 1 and spaces == 1 and width == length:
            bits |= SPACE
        elif size == 0 or spaces > 0:
            bits |= ODD
        result[c] |= bits
        i += width
