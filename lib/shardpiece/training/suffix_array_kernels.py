"""Numba kernels that sort strings inside one array of symbols and count what repeats in them.

``text`` (int32) holds symbols from 1 to n; a string is a position and a length, ``length`` (int32) being indexed by the
position. Lengths are bounded in advance (pieces are short), so that sorting needs no suffix-array construction proper:
quicksort over keys of as many symbols as fit 63 bits, then again inside runs of equal keys (Bentley and Sedgewick 1997,
with the caching of Ng and Kakehi 2007). Substrings and their counts come from the intervals of the longest common
prefixes (Abouelhoda, Kurtz and Ohlebusch 2004).
"""

import numpy as np

from shardpiece.kernel_cache import kernel, plain_kernel

_SMALL = 12


@plain_kernel
def packed_key(text, position, n, depth, bits, width):
    """Symbols depth, depth + 1, ... of the string at ``position`` of n symbols, ``width`` of them with ``bits`` each;
    zeros after its end."""
    key = np.int64(0)
    for d in range(depth, depth + width):
        key <<= bits
        if d < n:
            key |= np.int64(text[position + d])
    return key


@plain_kernel
def sort_keys(keys, order, low, high, stack):
    """Sort keys[low:high] (int64) and order along with them: quicksort, the smaller part first, so that ``stack``
    (int64 [128]) suffices. Equal keys end in an order of their own, the same in every run."""
    size = 0
    while True:
        if high - low <= _SMALL:
            for i in range(low + 1, high):
                key, value = keys[i], order[i]
                j = i
                while j > low and keys[j - 1] > key:
                    keys[j] = keys[j - 1]
                    order[j] = order[j - 1]
                    j -= 1
                keys[j] = key
                order[j] = value
            if size == 0:
                return
            size -= 2
            low, high = stack[size], stack[size + 1]
            continue
        a, b, c = keys[low], keys[low + ((high - low) >> 1)], keys[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high - 1
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if j + 1 - low > high - i:
            stack[size], stack[size + 1] = low, j + 1
            low = i
        else:
            stack[size], stack[size + 1] = i, high
            high = j + 1
        size += 2


@kernel
def sort_strings(text, length, order, n_symbols):
    """Sort the positions ``order`` (int32) by the strings at them; equal strings come to lie side by side."""
    n = len(order)
    bits = 1
    while (1 << bits) <= n_symbols:
        bits += 1
    width = 63 // bits
    begin = np.zeros(n_symbols + 2, np.int64)
    for i in range(n):
        begin[text[order[i]] + 1] += 1
    for c in range(n_symbols + 1):
        begin[c + 1] += begin[c]
    at = begin.copy()
    largest = np.int64(0)
    for c in range(n_symbols + 1):
        largest = max(largest, begin[c + 1] - begin[c])
    bucketed = np.empty(n, np.int32)
    for i in range(n):
        c = text[order[i]]
        bucketed[at[c]] = order[i]
        at[c] += 1
    order[:] = bucketed
    keys = np.empty(largest, np.int64)
    stack = np.empty(128, np.int64)
    last = (np.int64(1) << bits) - 1
    # Runs of strings that agree in their first `depth` symbols, still to be sorted.
    waiting = [(np.int64(0), np.int64(0), np.int64(0))]
    waiting.pop()
    for c in range(n_symbols + 1):
        low, high = begin[c], begin[c + 1]
        if high - low < 2:
            continue
        waiting.append((low, high, np.int64(1)))
        while len(waiting) > 0:
            low, high, depth = waiting.pop()
            m = high - low
            part = order[low:high]
            for i in range(m):
                keys[i] = packed_key(text, part[i], length[part[i]], depth, bits, width)
            sort_keys(keys, part, np.int64(0), m, stack)
            i = np.int64(0)
            while i < m:
                j = i + 1
                while j < m and keys[j] == keys[i]:
                    j += 1
                if j - i > 1 and keys[i] & last:
                    waiting.append((low + i, low + j, depth + width))
                i = j


@plain_kernel
def common_prefix(text, a, b, most):
    """How many of the first ``most`` symbols at positions a and b agree."""
    n = np.int64(0)
    while n < most and text[a + n] == text[b + n]:
        n += 1
    return n


@kernel
def merge_equal(text, length, order, count, starts, counts, out):
    """Copy the distinct strings of ``order`` (sorted) into ``out`` (int32) one after the other, ``starts`` (int64) and
    ``counts`` (int64) with them; ``count`` (int64) is parallel to ``order``. Returns (strings, symbols)."""
    m = np.int64(0)
    at = np.int64(0)
    starts[0] = 0
    for i in range(len(order)):
        p = np.int64(order[i])
        n = np.int64(length[p])
        if i > 0:
            q = np.int64(order[i - 1])
            if length[q] == n and common_prefix(text, p, q, n) == n:
                counts[m - 1] += count[i]
                continue
        for d in range(n):
            out[at + d] = text[p + d]
        at += n
        counts[m] = count[i]
        m += 1
        starts[m] = at
    return m, at


@kernel
def repeated_substrings(text, length, order, weight_of, counts, longest, left, depth, score):
    """All strings of 2 to ``longest`` symbols that begin a sorted string, occur with a total weight of two or more and
    are not followed by the same symbol every time (the end of a string differs from every symbol and every other end).

    ``order``: int32, sorted positions; the strings of each are at most longest + 1 symbols, so that what follows a
    string of ``longest`` is known. The weight of position p is counts[weight_of[p]] (int32 → int64). Writes index into
    order (int32), number of symbols (uint8), and weight times that number (int64) of each while there is room; returns
    how many there are.
    """
    n = len(order)
    room = len(left)
    found = np.int64(0)
    # The open intervals: common prefix, first index, total weight before it.
    open_depth = np.empty(longest + 3, np.int64)
    open_left = np.empty(longest + 3, np.int64)
    open_weight = np.empty(longest + 3, np.int64)
    size = 0
    total = np.int64(0)
    shared = np.int64(0)  # of strings i - 1 and i
    for i in range(n):
        p = np.int64(order[i])
        own = np.int64(length[p])
        following = np.int64(0)
        if i + 1 < n:
            q = np.int64(order[i + 1])
            following = common_prefix(text, p, q, min(own, np.int64(length[q])))
        weight = counts[weight_of[p]]
        if 2 <= own <= longest and own > shared and own > following and weight >= 2:
            if found < room:
                left[found], depth[found], score[found] = i, own, weight * own
            found += 1
        begin = np.int64(i)
        before = total
        total += weight
        while size > 0 and open_depth[size - 1] > following:
            size -= 1
            begin = open_left[size]
            before = open_weight[size]
            d = open_depth[size]
            if 2 <= d <= longest:
                if found < room:
                    left[found], depth[found], score[found] = begin, d, (total - before) * d
                found += 1
        if following > 0 and (size == 0 or open_depth[size - 1] < following):
            open_depth[size] = following
            open_left[size] = begin
            open_weight[size] = before
            size += 1
        shared = following
    return found
