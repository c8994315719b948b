"""Numba kernels of the BPE merge loop (``merge_loop`` drives them and explains the algorithm).

Positions. All words lie in one array ``symbol``, int32, each followed by a separator -1, with a separator at 0. A
symbol that covers k > 1 slots stands at its first slot; ``span`` (uint16) holds k at its first and its last slot, so
both neighbours are found without links. ``word_at`` (int32) names the word of a slot.

Pairs. ``pair_at`` (int32) holds, for the first slot of a symbol, the record of the pair that it starts with its right
neighbour, 0 where there is none. Record 0 is a dump: counts of unrecorded pairs go there and are never read. Record r
has ``key[r] = left << 32 | right``, ``count[r]`` and its occurrences, ascending positions, in
``occurrence[start[r]:end[r]]`` (int32); an occurrence i is live while ``pair_at[i] == r``.

Heap. Binary heap over records, lazily refreshed: an entry keeps the count and the order key it was pushed with, and
both can only get worse, so an entry that is still true on top is the best pair.

Progress lives in ``state`` (int64): see the STATE_ constants.
"""

from typing import NamedTuple

import numpy as np

from shardpiece.intrinsics import get, prefetch, put
from shardpiece.kernel_cache import plain_kernel
from shardpiece.training.token_kernels import (
    TIE_FIRST_SEEN,
    add_token,
    is_taken,
    joined_size,
    may_merge,
    take,
    wins_tie,
)

STATE_MERGES = 0
STATE_NEXT_ID = 1
STATE_RECORDS = 2
STATE_OCCURRENCES = 3
STATE_HEAP = 4
STATE_NEED = 5
STATE_TOKEN_BYTES = 6
STATE_SIZE = 8

DONE = 0
DRAINED = 1
NEED_OCCURRENCES = 2
NEED_RECORDS = 3
NEED_TOKEN_BYTES = 4

_FAR = 16
_NEAR = 8
_LOW_32 = np.int64(0xFFFFFFFF)


class Words(NamedTuple):
    """The words as merged so far, by slot, and their counts."""

    symbol: np.ndarray  # int32
    word_at: np.ndarray  # int32
    span: np.ndarray  # uint16
    pair_at: np.ndarray  # int32
    count: np.ndarray  # int64, by word


class Records(NamedTuple):
    """Pairs that are watched; int64 all."""

    key: np.ndarray
    count: np.ndarray
    start: np.ndarray
    end: np.ndarray


class Heap(NamedTuple):
    """The priority queue over the records."""

    count: np.ndarray  # int64
    key: np.ndarray  # int64
    record: np.ndarray  # int32


class Scratch(NamedTuple):
    """Grouping of new pairs. A pair of symbol s before the new one is in group s + 1, one behind it in group
    half + s + 1, where half is half the groups; groups 0 and half gather what has no neighbour."""

    count: np.ndarray  # int64, by group; returns zeroed
    number: np.ndarray  # int32, by group: occurrences, then the record; returns zeroed
    touched: np.ndarray  # int32, the groups with occurrences
    position: np.ndarray  # int32, two per occurrence
    group: np.ndarray  # int32, likewise


@plain_kernel
def sift_up(x, count, key, record, heap, tie, tokens):
    """Place an entry at heap index x or above."""
    while x > 0:
        y = (x - 1) >> 1
        c = heap.count[y]
        if count > c or (count == c and wins_tie(key, heap.key[y], tie, tokens)):
            heap.count[x] = c
            heap.key[x] = heap.key[y]
            heap.record[x] = heap.record[y]
            x = y
        else:
            break
    heap.count[x] = count
    heap.key[x] = key
    heap.record[x] = record


@plain_kernel
def sift_down(size, count, key, record, heap, tie, tokens):
    """Place an entry at the root or below in a heap of ``size`` entries."""
    x = 0
    while True:
        y = 2 * x + 1
        if y >= size:
            break
        if y + 1 < size:
            c = heap.count[y + 1]
            d = heap.count[y]
            if c > d or (c == d and wins_tie(heap.key[y + 1], heap.key[y], tie, tokens)):
                y += 1
        c = heap.count[y]
        if c > count or (c == count and wins_tie(heap.key[y], key, tie, tokens)):
            heap.count[x] = c
            heap.key[x] = heap.key[y]
            heap.record[x] = heap.record[y]
            x = y
        else:
            break
    heap.count[x] = count
    heap.key[x] = key
    heap.record[x] = record


@plain_kernel
def remove_top(size, heap, tie, tokens):
    """Remove the root of a heap of ``size`` entries; returns the new size."""
    size -= 1
    if size > 0:
        sift_down(size, heap.count[size], heap.key[size], heap.record[size], heap, tie, tokens)
    return size


@plain_kernel
def order_key(r, records, pair_at, occurrence, tie):
    """The key that decides ties for record r; for first-seen, its first live position (and the list is advanced
    to it)."""
    if tie != TIE_FIRST_SEEN:
        return records.key[r]
    z = records.start[r]
    while z < records.end[r] and pair_at[occurrence[z]] != r:
        z += 1
    records.start[r] = z
    return np.int64(occurrence[z]) if z < records.end[r] else np.int64(1) << 60


@plain_kernel
def build_heap(heap, records, pair_at, occurrence, tie, tokens, state):
    """Push every record."""
    for r in range(1, state[STATE_RECORDS]):
        key = order_key(r, records, pair_at, occurrence, tie)
        sift_up(r - 1, records.count[r], key, r, heap, tie, tokens)
    state[STATE_HEAP] = state[STATE_RECORDS] - 1


@plain_kernel
def prefetch_place(words, occurrence, z):
    """Ask for what a merge reads at occurrence z."""
    i = np.int64(get(occurrence, z))
    prefetch(words.pair_at, i)
    prefetch(words.symbol, i)
    prefetch(words.span, i)
    prefetch(words.word_at, i)


@plain_kernel
def merge_pairs(
    words, floor, occurrence, records, heap, scratch, tie, tokens, allowed, rules, merge_key, merge_count, limit, work,
    state,
):  # fmt: skip
    """Merge the best pairs until ``limit`` merges are made or ``work`` occurrences visited, the heap has no pair of at
    least ``floor``, or an array must grow first (state[STATE_NEED] then says to how many elements).

    New pairs all contain the new symbol, so (side, other symbol) names each: a stable counting sort by these groups
    the new positions. The loop over the occurrences has next to no branches that depend on data: what does not exist,
    a neighbour beyond a separator or a pair without record, goes to a dump.
    """
    symbol, word_at, span, pair_at, word_count = words
    group_count, group_number, touched, new_position, new_group = scratch
    half = len(group_number) >> 1
    pair_count = records.count
    while state[STATE_MERGES] < limit and work > 0:
        heap_size = state[STATE_HEAP]
        if heap_size == 0:
            return DRAINED
        p = np.int64(heap.record[0])
        count = pair_count[p]
        key = heap.key[0]
        if count < floor:  # below the floor for good
            state[STATE_HEAP] = remove_top(heap_size, heap, tie, tokens)
            continue
        stale = count != heap.count[0]
        if tie == TIE_FIRST_SEEN:
            key = order_key(p, records, pair_at, occurrence, tie)
            stale = stale or key != heap.key[0]
        if stale:
            sift_down(heap_size, count, key, p, heap, tie, tokens)
            continue
        left_id = records.key[p] >> 32
        right_id = records.key[p] & _LOW_32
        if allowed.unique and is_taken(left_id, right_id, tokens, allowed.taken):
            state[STATE_HEAP] = remove_top(heap_size, heap, tie, tokens)
            continue

        # The best pair. Make sure that everything it may create fits before anything changes.
        new = state[STATE_NEXT_ID]
        occurrences = records.end[p] - records.start[p]
        r = state[STATE_RECORDS]
        used = state[STATE_OCCURRENCES]
        if used + 2 * occurrences >= len(occurrence):
            state[STATE_NEED] = used + 2 * occurrences + 1
            return NEED_OCCURRENCES
        born = min(2 * occurrences, 2 * new + 2)
        if r + born > len(records.key) or heap_size + born > len(heap.count):
            state[STATE_NEED] = max(r, heap_size) + born
            return NEED_RECORDS
        end = state[STATE_TOKEN_BYTES]
        size = joined_size(left_id, right_id, tokens)
        if end + size > len(tokens.data):
            state[STATE_NEED] = end + size
            return NEED_TOKEN_BYTES
        begin = records.start[p]
        last = records.end[p]
        for z in range(begin, min(begin + _FAR, last)):
            prefetch_place(words, occurrence, z)
        add_token(new, end, left_id, right_id, tokens, allowed.prefix)
        state[STATE_TOKEN_BYTES] = end + size
        if allowed.unique:
            take(new, tokens, allowed.taken)
        heap_size = remove_top(heap_size, heap, tie, tokens)
        if heap_size > 0:
            prefetch(occurrence, records.start[np.int64(heap.record[0])])
        merge_key[state[STATE_MERGES]] = records.key[p]
        merge_count[state[STATE_MERGES]] = count
        state[STATE_MERGES] += 1
        work -= occurrences

        # Replace the occurrences, left to right.
        found = np.int64(0)
        groups = np.int64(0)
        for z in range(begin, min(begin + _NEAR, last)):
            prefetch(word_count, np.int64(get(word_at, np.int64(get(occurrence, z)))))
        for z in range(begin, last):
            if z + _FAR < last:
                prefetch_place(words, occurrence, z + _FAR)
            if z + _NEAR < last:
                prefetch(word_count, np.int64(get(word_at, np.int64(get(occurrence, z + _NEAR)))))
            i = np.int64(get(occurrence, z))
            if get(pair_at, i) != p:
                continue
            left_span = np.int64(get(span, i))
            j = i + left_span
            merged_span = left_span + np.int64(get(span, j))
            after = i + merged_span
            before = i - np.int64(get(span, i - 1))
            f = get(word_count, np.int64(get(word_at, i)))

            r = np.int64(get(pair_at, before))
            put(pair_count, r, get(pair_count, r) - f)
            r = np.int64(get(pair_at, j))
            put(pair_count, r, get(pair_count, r) - f)
            put(pair_at, before, np.int32(0))
            put(pair_at, j, np.int32(0))
            put(pair_at, i, np.int32(0))
            put(span, i, np.uint16(merged_span))
            put(span, after - 1, np.uint16(merged_span))
            put(symbol, i, np.int32(new))

            g = np.int64(get(symbol, before)) + 1
            number = get(group_number, g)
            put(touched, groups, np.int32(g))
            groups += number == 0
            put(group_number, g, number + np.int32(1))
            put(group_count, g, get(group_count, g) + f)
            put(new_position, found, np.int32(before))
            put(new_group, found, np.int32(g))
            found += g > 0

            g = np.int64(get(symbol, after)) + 1
            g = half + (0 if get(pair_at, after) == p else g)
            number = get(group_number, g)
            put(touched, groups, np.int32(g))
            groups += number == 0
            put(group_number, g, number + np.int32(1))
            put(group_count, g, get(group_count, g) + f)
            put(new_position, found, np.int32(i))
            put(new_group, found, np.int32(g))
            found += g > half
        pair_count[p] = 0

        # Records for the new pairs that reach the floor.
        r = state[STATE_RECORDS]
        first = r
        for t in range(groups):
            g = np.int64(touched[t])
            n = np.int64(group_number[g])
            left_id = g - 1 if g < half else new
            right_id = new if g < half else g - half - 1
            group_number[g] = 0
            if (
                group_count[g] >= floor
                and left_id >= 0
                and right_id >= 0
                and may_merge(left_id, right_id, tokens, allowed, rules)
            ):
                records.key[r] = (left_id << 32) | right_id
                pair_count[r] = group_count[g]
                records.start[r] = used
                records.end[r] = used
                used += n
                group_number[g] = r
                r += 1
            group_count[g] = 0
        if r > first:
            records.end[0] = len(occurrence) - 1
            for t in range(found):
                q = np.int64(get(group_number, np.int64(get(new_group, t))))
                at = get(new_position, t)
                end = get(records.end, q)
                put(pair_at, np.int64(at), np.int32(q))
                put(occurrence, end, at)
                put(records.end, q, end + (q > 0))
            for t in range(groups):
                group_number[touched[t]] = 0
        for q in range(first, r):
            key = order_key(q, records, pair_at, occurrence, tie)
            sift_up(heap_size, pair_count[q], key, q, heap, tie, tokens)
            heap_size += 1
        state[STATE_HEAP] = heap_size
        state[STATE_RECORDS] = r
        state[STATE_OCCURRENCES] = used
        state[STATE_NEXT_ID] = new + 1
    return DONE
