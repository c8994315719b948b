"""Numba kernels that lay words out and index their adjacent pairs for the merge loop.

Arrays and records are those described in ``merge_kernels``, which changes them.

Pair table: ``table`` (int64, a power of two of slots, two numbers each: left << 32 | right, or -1, and the count), open
addressing.
"""

import numpy as np

from shardpiece.intrinsics import MIX_1, get, leading_zeros, prefetch, put
from shardpiece.kernel_cache import plain_kernel
from shardpiece.training.token_kernels import may_merge

BUCKETS = 512

_AHEAD = 12
_LOW_32 = np.int64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)


@plain_kernel
def count_slots(data, starts, symbol_ids):
    """Slots and pieces of the layout: a piece is a run of symbols >= 0 inside a word, those of fewer than two symbols
    are left out, each has a separator. ``data`` (uint8 or int32) is mapped by ``symbol_ids`` (int32) unless that is
    empty."""
    slots = 1
    pieces = 0
    mapped = len(symbol_ids) > 0
    for w in range(len(starts) - 1):
        run = 0
        for i in range(starts[w], starts[w + 1]):
            s = symbol_ids[data[i]] if mapped else np.int32(data[i])
            if s >= 0:
                run += 1
            else:
                if run > 1:
                    slots += run + 1
                    pieces += 1
                run = 0
        if run > 1:
            slots += run + 1
            pieces += 1
    return slots, pieces


@plain_kernel
def layout(data, starts, symbol_ids, symbol, word_at, span):
    """Write the pieces into the slots, of which there is one more than count_slots says."""
    symbol[0] = -1
    word_at[0] = 0
    span[0] = 1
    mapped = len(symbol_ids) > 0
    p = 1
    for w in range(len(starts) - 1):
        begin = p
        for i in range(starts[w], starts[w + 1]):
            s = symbol_ids[data[i]] if mapped else np.int32(data[i])
            if s >= 0:
                symbol[p] = s
                word_at[p] = w
                span[p] = 1
                p += 1
            else:
                if p - begin > 1:
                    symbol[p] = -1
                    word_at[p] = w
                    span[p] = 1
                    p += 1
                    begin = p
                p = begin
        if p - begin > 1:
            symbol[p] = -1
            word_at[p] = w
            span[p] = 1
            p += 1
        else:
            p = begin


@plain_kernel
def compact(symbol, word_at, span, word_count, n, single, dropped):
    """Close the gaps that merges left and drop words of one symbol. ``single`` (int64, by symbol, zeroed) becomes the
    symbols' counts, those of dropped words included; these are added to ``dropped`` (likewise; may be empty). Returns the
    new number of slots."""
    q = 1
    i = 1
    while i < n:
        begin = q
        w = word_at[i]
        f = word_count[w]
        while symbol[i] >= 0:
            s = symbol[i]
            n_slots = span[i]
            single[s] += f
            symbol[q] = s
            word_at[q] = w
            span[q] = 1
            q += 1
            i += n_slots
        if q - begin == 1:
            q = begin
            if len(dropped) > 0:
                dropped[symbol[q]] += f
        else:
            symbol[q] = -1
            word_at[q] = w
            span[q] = 1
            q += 1
        i += 1
    return q


@plain_kernel
def _hash(a, b):
    return np.int64((np.uint64(a) << _SHIFT_32 | np.uint64(b)) * MIX_1 >> _SHIFT_32)


@plain_kernel
def count_pairs(symbol, word_at, pair_at, n, word_count, single, floor, table):
    """Count all adjacent pairs.

    Pairs with a symbol rarer than ``floor`` by ``single`` (int64, by symbol) cannot reach it and are skipped; nothing
    is skipped where that is empty. Leaves the table slot of each pair in ``pair_at``, -1 for none. Returns the number
    of distinct pairs, or -1 when the table is too small.
    """
    size = len(table) >> 1
    mask = size - 1
    for h in range(size):
        table[2 * h] = -1
        table[2 * h + 1] = 0
    limit = size - (size >> 2)
    used = 0
    filtered = len(single) > 0
    for i in range(n):
        if i + _AHEAD < n - 1:
            ahead = _hash(get(symbol, i + _AHEAD), get(symbol, i + _AHEAD + 1)) & mask
            prefetch(table, 2 * ahead)
        a = get(symbol, i)
        b = np.int32(-1) if i + 1 == n else get(symbol, i + 1)
        if a < 0 or b < 0 or (filtered and (single[a] < floor or single[b] < floor)):
            put(pair_at, i, np.int32(-1))
            continue
        key = (np.int64(a) << 32) | np.int64(b)
        h = _hash(a, b) & mask
        found = get(table, 2 * h)
        while found != key and found >= 0:
            h = (h + 1) & mask
            found = get(table, 2 * h)
        if found < 0:
            if used == limit:
                return -1
            put(table, 2 * h, key)
            used += 1
        put(table, 2 * h + 1, get(table, 2 * h + 1) + get(word_count, np.int64(get(word_at, i))))
        put(pair_at, i, np.int32(h))
    return used


@plain_kernel
def bucket_of(count):
    """The bucket of a count > 0: eight for each power of two."""
    power = 63 - leading_zeros(np.uint64(count))
    return 8 * power + (((count >> (power - 3)) if power >= 3 else (count << (3 - power))) & 7)


@plain_kernel
def bucket_counts(table, floor, tokens, allowed, rules, buckets):
    """Histogram of the counts in ``buckets`` (int64 [BUCKETS]), of the pairs that reach ``floor`` and may merge; those
    that may not have their count set to 0. Returns the largest count."""
    best = np.int64(0)
    for h in range(len(table) >> 1):
        key = table[2 * h]
        if key >= 0 and table[2 * h + 1] >= floor:
            if may_merge(key >> 32, key & _LOW_32, tokens, allowed, rules):
                count = table[2 * h + 1]
                best = max(best, count)
                buckets[bucket_of(count)] += 1
            else:
                table[2 * h + 1] = 0
    return best


@plain_kernel
def count_of_rank(buckets, rank):
    """About the count of the pair that has ``rank`` others before it: the least count of its bucket, 1 when there are
    fewer pairs."""
    above = 0
    for bucket in range(BUCKETS - 1, -1, -1):
        above += buckets[bucket]
        if above >= rank:
            power = bucket >> 3
            step = np.int64(8 + (bucket & 7))
            return (step << (power - 3)) if power >= 3 else max(np.int64(1), step >> (3 - power))
    return np.int64(1)


@plain_kernel
def select_pairs(table, floor, records):
    """Make the records of the pairs that reach ``floor``, from 1 on. The table gets their numbers instead of the
    counts, 0 for the other pairs. Returns the number of records with the dump."""
    records.key[0] = 0
    records.count[0] = 0
    records.end[0] = 0
    r = 1
    for h in range(len(table) >> 1):
        if table[2 * h] >= 0:
            count = table[2 * h + 1]
            table[2 * h + 1] = 0
            if count >= floor:
                records.key[r] = table[2 * h]
                records.count[r] = count
                records.end[r] = 0
                table[2 * h + 1] = r
                r += 1
    return r


@plain_kernel
def number_pairs(pair_at, n, table, records):
    """Replace table slots by records in ``pair_at`` and count the occurrences of each in ``records.end``."""
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(table, 2 * np.int64(get(pair_at, i + _AHEAD)))
        h = np.int64(get(pair_at, i))
        r = np.int64(0) if h < 0 else get(table, 2 * h + 1)
        put(pair_at, i, np.int32(r))
        put(records.end, r, get(records.end, r) + 1)


@plain_kernel
def place_lists(n_records, records):
    """Turn the numbers of occurrences in ``records.end`` into where each list begins. Returns (all occurrences, the
    longest list)."""
    used = np.int64(0)
    longest = np.int64(0)
    for r in range(1, n_records):
        n = records.end[r]
        records.start[r] = used
        records.end[r] = used
        used += n
        longest = max(longest, n)
    return used, longest


@plain_kernel
def fill_lists(pair_at, n, records, occurrence):
    """Write the positions into the occurrence lists, ascending; those without record go to the last place."""
    records.start[0] = 0
    records.end[0] = len(occurrence) - 1
    for i in range(n):
        r = np.int64(get(pair_at, i))
        at = get(records.end, r)
        put(occurrence, at, np.int32(i))
        put(records.end, r, at + (r > 0))
