"""Numba kernels that lay words out and index their adjacent pairs for the merge loop.

Arrays and records are those described in ``merge_kernels``, which changes them.
"""

import numpy as np

from shardpiece.intrinsics import MIX_1
from shardpiece.kernel_cache import kernel

_LOW_32 = np.int64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)


@kernel
def count_slots(starts):
    """Slots and words of the layout: words of fewer than two bytes are left out, one separator per word."""
    slots = 1
    words = 0
    for w in range(len(starts) - 1):
        n = starts[w + 1] - starts[w]
        if n > 1:
            slots += n + 1
            words += 1
    return slots, words


@kernel
def layout(data, starts, byte_id, symbol, word_at):
    """Write the words with two bytes or more into ``symbol`` and ``word_at`` (sized by count_slots)."""
    symbol[0] = -1
    word_at[0] = 0
    p = 1
    for w in range(len(starts) - 1):
        if starts[w + 1] - starts[w] > 1:
            for i in range(starts[w], starts[w + 1]):
                symbol[p] = byte_id[data[i]]
                word_at[p] = w
                p += 1
            symbol[p] = -1
            word_at[p] = w
            p += 1


@kernel
def largest_byte_pair(symbol, word_at, word_count):
    """Largest count of an adjacent pair while symbols are still single bytes."""
    counts = np.zeros(65536, np.int64)
    best = np.int64(0)
    for i in range(1, len(symbol) - 1):
        a = symbol[i]
        b = symbol[i + 1]
        if a >= 0 and b >= 0:
            k = (np.int64(a) << 8) | np.int64(b)
            counts[k] += word_count[word_at[i]]
            if counts[k] > best:
                best = counts[k]
    return best


@kernel
def compact(symbol, word_at, span, n):
    """Close the gaps that merges left and drop words of one symbol; returns the new number of slots."""
    q = 1
    i = 1
    while i < n:
        first = q
        w = word_at[i]
        while symbol[i] >= 0:
            symbol[q] = symbol[i]
            word_at[q] = w
            q += 1
            i += span[i]
        if q - first == 1:
            q = first
        else:
            symbol[q] = -1
            word_at[q] = w
            q += 1
        i += 1
    return q


@kernel
def count_pairs(symbol, word_at, span, pair_at, n, word_count, n_ids, floor, keys, counts, numbers):
    """Count adjacent pairs into the open-addressing table (keys, counts, numbers of occurrences).

    Pairs with a symbol rarer than ``floor`` cannot reach it and are skipped. Leaves the table slot of each pair in
    ``pair_at`` (-1 for none) and resets ``span``. Returns the number of distinct pairs, or -1 when the table is too
    small.
    """
    single = np.zeros(n_ids, np.int64)
    for i in range(n):
        span[i] = 1
        if symbol[i] >= 0:
            single[symbol[i]] += word_count[word_at[i]]
    mask = len(keys) - 1
    for h in range(len(keys)):
        keys[h] = -1
    limit = len(keys) - (len(keys) >> 2)
    used = 0
    for i in range(n):
        pair_at[i] = -1
    for i in range(1, n - 1):
        a = symbol[i]
        b = symbol[i + 1]
        if a >= 0 and b >= 0 and single[a] >= floor and single[b] >= floor:
            key = (np.int64(a) << 32) | np.int64(b)
            h = np.int64((np.uint64(key) * MIX_1) >> _SHIFT_32) & mask
            while keys[h] != key and keys[h] >= 0:
                h = (h + 1) & mask
            if keys[h] < 0:
                if used == limit:
                    return -1
                keys[h] = key
                counts[h] = 0
                numbers[h] = 0
                used += 1
            counts[h] += word_count[word_at[i]]
            numbers[h] += 1
            pair_at[i] = h
    return used


@kernel
def may_merge(left, right, token_start, token_bytes, max_length, reserved, reserved_start):
    """Whether the concatenation may become a token: not longer than ``max_length`` bytes, and not the text of a
    reserved (special) token. Depends on the two strings alone, as the merge loop's lemma needs."""
    a = token_start[left]
    n = token_start[left + 1] - a
    b = token_start[right]
    m = token_start[right + 1] - b
    if n + m > max_length:
        return False
    for r in range(len(reserved_start) - 1):
        s = reserved_start[r]
        if reserved_start[r + 1] - s == n + m:
            same = True
            for i in range(n):
                if reserved[s + i] != token_bytes[a + i]:
                    same = False
                    break
            if same:
                for i in range(m):
                    if reserved[s + n + i] != token_bytes[b + i]:
                        same = False
                        break
            if same:
                return False
    return True


@kernel
def select_pairs(keys, counts, numbers, floor, token_start, token_bytes, max_length, reserved, reserved_start):
    """Mark the table slots that get a record: numbers[h] keeps the occurrences of a selected pair and becomes 0
    for the others. Returns (records, occurrences, longest occurrence list)."""
    records = 0
    total = 0
    longest = 0
    for h in range(len(keys)):
        if keys[h] >= 0:
            if counts[h] >= floor and may_merge(
                keys[h] >> 32,
                keys[h] & _LOW_32,
                token_start,
                token_bytes,
                max_length,
                reserved,
                reserved_start,
            ):
                records += 1
                total += numbers[h]
                longest = max(longest, np.int64(numbers[h]))
            else:
                numbers[h] = 0
    return records, total, longest


@kernel
def index_pairs(pair_at, n, keys, counts, numbers, occurrence, pair_key, pair_count, pair_start, pair_end):
    """Create the records of the selected pairs and their occurrence lists (ascending, since positions are). Returns
    (number of records with the dump, number of occurrences)."""
    pair_key[0] = 0
    pair_count[0] = 0
    pair_start[0] = 0
    pair_end[0] = 0
    r = 1
    used = np.int64(0)
    for h in range(len(keys)):
        if keys[h] >= 0 and numbers[h] > 0:
            pair_key[r] = keys[h]
            pair_count[r] = counts[h]
            pair_start[r] = used
            pair_end[r] = used
            used += numbers[h]
            numbers[h] = r
            r += 1
    for i in range(n):
        h = pair_at[i]
        if h < 0:
            pair_at[i] = 0
        else:
            p = numbers[h]
            pair_at[i] = p
            if p > 0:
                occurrence[pair_end[p]] = i
                pair_end[p] += 1
    return r, used
