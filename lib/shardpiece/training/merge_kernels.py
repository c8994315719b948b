"""Numba kernels of the BPE merge loop (``merge_loop`` drives them and explains the algorithm).

Positions. All words lie in one array ``symbol``, int32, each followed by a separator -1, with a separator at 0. A
symbol that covers k > 1 slots stands at its first slot; ``span`` (uint16) holds k at its first and its last slot, so
both neighbours are found without links. ``word_at`` (int32) names the word of a slot.

Pairs. ``pair_at`` (int32) holds, for the first slot of a symbol, the record of the pair that it starts with its right
neighbour, 0 where there is none. Record 0 is a dump: counts of unrecorded pairs go there and are never read. Record r
has ``pair_key[r] = left << 32 | right``, ``pair_count[r]`` (int64) and its occurrences, ascending positions, in
``occurrence[pair_start[r]:pair_end[r]]``; an occurrence i is live while ``pair_at[i] == r``.

Heap. Binary heap over records, lazily refreshed: an entry keeps the count and the order key it was pushed with, and
both can only get worse, so an entry that is still true on top is the best pair.

Progress lives in ``state`` (int64): see the STATE_ constants.
"""

import numpy as np

from shardpiece.kernel_cache import kernel
from shardpiece.training.pair_kernels import may_merge

TIE_ID = 0
TIE_LEXICOGRAPHIC = 1
TIE_LEXICOGRAPHIC_LAST = 2
TIE_FIRST_SEEN = 3

STATE_MERGES = 0
STATE_NEXT_ID = 1
STATE_RECORDS = 2
STATE_OCCURRENCES = 3
STATE_HEAP = 4
STATE_NEED = 5
STATE_SIZE = 8

DONE = 0
DRAINED = 1
NEED_OCCURRENCES = 2
NEED_RECORDS = 3
NEED_TOKEN_BYTES = 4

_LOW_32 = np.int64(0xFFFFFFFF)


@kernel
def compare_tokens(a, b, token_head, token_start, token_bytes):
    """-1, 0 or 1 as the byte string of token a is before, equal to or after that of b. ``token_head`` holds the
    first eight bytes big-endian, which settles most comparisons."""
    if a == b:
        return 0
    if token_head[a] != token_head[b]:
        return -1 if token_head[a] < token_head[b] else 1
    i = token_start[a]
    j = token_start[b]
    n = token_start[a + 1] - i
    m = token_start[b + 1] - j
    for k in range(min(n, m)):
        x = token_bytes[i + k]
        y = token_bytes[j + k]
        if x != y:
            return -1 if x < y else 1
    if n == m:
        return 0
    return -1 if n < m else 1


@kernel
def wins_tie(key_1, key_2, tie, token_head, token_start, token_bytes):
    """Whether the pair (or position) key_1 goes before key_2 at equal counts."""
    if tie in (TIE_ID, TIE_FIRST_SEEN):
        return key_1 < key_2
    order = compare_tokens(key_1 >> 32, key_2 >> 32, token_head, token_start, token_bytes)
    if order == 0:
        order = compare_tokens(key_1 & _LOW_32, key_2 & _LOW_32, token_head, token_start, token_bytes)
    return order < 0 if tie == TIE_LEXICOGRAPHIC else order > 0


@kernel
def sift_up(x, count, key, record, heap_count, heap_key, heap_record, tie, token_head, token_start, token_bytes):
    """Place an entry at heap index x or above."""
    while x > 0:
        y = (x - 1) >> 1
        c = heap_count[y]
        if count > c or (count == c and wins_tie(key, heap_key[y], tie, token_head, token_start, token_bytes)):
            heap_count[x] = c
            heap_key[x] = heap_key[y]
            heap_record[x] = heap_record[y]
            x = y
        else:
            break
    heap_count[x] = count
    heap_key[x] = key
    heap_record[x] = record


@kernel
def sift_down(size, count, key, record, heap_count, heap_key, heap_record, tie, token_head, token_start, token_bytes):
    """Place an entry at the root or below in a heap of ``size`` entries."""
    x = 0
    while True:
        y = 2 * x + 1
        if y >= size:
            break
        if y + 1 < size:
            c = heap_count[y + 1]
            d = heap_count[y]
            if c > d or (c == d and wins_tie(heap_key[y + 1], heap_key[y], tie, token_head, token_start, token_bytes)):
                y += 1
        c = heap_count[y]
        if c > count or (c == count and wins_tie(heap_key[y], key, tie, token_head, token_start, token_bytes)):
            heap_count[x] = c
            heap_key[x] = heap_key[y]
            heap_record[x] = heap_record[y]
            x = y
        else:
            break
    heap_count[x] = count
    heap_key[x] = key
    heap_record[x] = record


@kernel
def order_key(r, pair_key, pair_start, pair_end, pair_at, occurrence, tie):
    """The key that decides ties for record r; for first-seen, its first live position (and the list is advanced
    to it)."""
    if tie != TIE_FIRST_SEEN:
        return pair_key[r]
    z = pair_start[r]
    while z < pair_end[r] and pair_at[occurrence[z]] != r:
        z += 1
    pair_start[r] = z
    return np.int64(occurrence[z]) if z < pair_end[r] else np.int64(1) << 60


@kernel
def build_heap(
    heap_count,
    heap_key,
    heap_record,
    pair_key,
    pair_count,
    pair_start,
    pair_end,
    pair_at,
    occurrence,
    tie,
    token_head,
    token_start,
    token_bytes,
    state,
):
    """Push every record."""
    for r in range(1, state[STATE_RECORDS]):
        key = order_key(r, pair_key, pair_start, pair_end, pair_at, occurrence, tie)
        sift_up(
            r - 1,
            pair_count[r],
            key,
            r,
            heap_count,
            heap_key,
            heap_record,
            tie,
            token_head,
            token_start,
            token_bytes,
        )
    state[STATE_HEAP] = state[STATE_RECORDS] - 1


@kernel
def merge_pairs(
    symbol,
    word_at,
    span,
    pair_at,
    word_count,
    floor,
    occurrence,
    pair_key,
    pair_count,
    pair_start,
    pair_end,
    heap_count,
    heap_key,
    heap_record,
    left_count,
    right_count,
    left_number,
    right_number,
    left_touched,
    right_touched,
    new_position,
    new_side,
    tie,
    token_head,
    token_start,
    token_bytes,
    max_length,
    reserved,
    reserved_start,
    merge_key,
    merge_count,
    limit,
    state,
):
    """Merge the best pairs until ``limit`` merges are made, the heap has no pair of at least ``floor``, or an
    array must grow first (state[STATE_NEED] then says to how many elements).

    New pairs all contain the new symbol, so (side, other symbol) names each: ``left_*`` and ``right_*``, indexed by
    the other symbol, group the new positions by a stable counting sort. All scratch arrays return zeroed.
    """
    while state[STATE_MERGES] < limit:
        heap_size = state[STATE_HEAP]
        if heap_size == 0:
            return DRAINED
        p = heap_record[0]
        count = pair_count[p]
        key = heap_key[0]
        if count < floor:
            # Below the floor for good: drop it.
            heap_size -= 1
            state[STATE_HEAP] = heap_size
            if heap_size > 0:
                sift_down(
                    heap_size,
                    heap_count[heap_size],
                    heap_key[heap_size],
                    heap_record[heap_size],
                    heap_count,
                    heap_key,
                    heap_record,
                    tie,
                    token_head,
                    token_start,
                    token_bytes,
                )
            continue
        stale = count != heap_count[0]
        if tie == TIE_FIRST_SEEN:
            key = order_key(p, pair_key, pair_start, pair_end, pair_at, occurrence, tie)
            stale = stale or key != heap_key[0]
        if stale:
            sift_down(
                heap_size,
                count,
                key,
                p,
                heap_count,
                heap_key,
                heap_record,
                tie,
                token_head,
                token_start,
                token_bytes,
            )
            continue

        # The best pair. Make sure that everything it may create fits before anything changes.
        new = state[STATE_NEXT_ID]
        occurrences = pair_end[p] - pair_start[p]
        records = state[STATE_RECORDS]
        used = state[STATE_OCCURRENCES]
        if used + 2 * occurrences > len(occurrence):
            state[STATE_NEED] = used + 2 * occurrences
            return NEED_OCCURRENCES
        born = min(2 * occurrences, 2 * new + 2)
        if records + born > len(pair_key) or heap_size + born > len(heap_count):
            state[STATE_NEED] = max(records, heap_size) + born
            return NEED_RECORDS
        left_id = pair_key[p] >> 32
        right_id = pair_key[p] & _LOW_32
        n = token_start[left_id + 1] - token_start[left_id]
        m = token_start[right_id + 1] - token_start[right_id]
        end = token_start[new]
        if end + n + m > len(token_bytes):
            state[STATE_NEED] = end + n + m
            return NEED_TOKEN_BYTES
        for i in range(n):
            token_bytes[end + i] = token_bytes[token_start[left_id] + i]
        for i in range(m):
            token_bytes[end + n + i] = token_bytes[token_start[right_id] + i]
        token_start[new + 1] = end + n + m
        head = np.uint64(0)
        for i in range(min(8, n + m)):
            head |= np.uint64(token_bytes[end + i]) << np.uint64(56 - 8 * i)
        token_head[new] = head

        heap_size -= 1
        if heap_size > 0:
            sift_down(
                heap_size,
                heap_count[heap_size],
                heap_key[heap_size],
                heap_record[heap_size],
                heap_count,
                heap_key,
                heap_record,
                tie,
                token_head,
                token_start,
                token_bytes,
            )
        merge_key[state[STATE_MERGES]] = pair_key[p]
        merge_count[state[STATE_MERGES]] = count
        state[STATE_MERGES] += 1

        # Replace the occurrences, left to right.
        found = 0
        lefts = 0
        rights = 0
        for z in range(pair_start[p], pair_end[p]):
            i = np.int64(occurrence[z])
            if pair_at[i] != p:
                continue
            left_span = np.int64(span[i])
            j = i + left_span
            right_span = np.int64(span[j])
            after = j + right_span
            f = word_count[word_at[i]]
            if symbol[i - 1] >= 0:
                before = i - np.int64(span[i - 1])
                s = symbol[before]
                pair_count[pair_at[before]] -= f
                pair_at[before] = 0
                if left_number[s] == 0:
                    left_touched[lefts] = s
                    lefts += 1
                left_number[s] += 1
                left_count[s] += f
                new_position[found] = before
                new_side[found] = s
                found += 1
            pair_count[pair_at[j]] -= f
            pair_at[j] = 0
            s = symbol[after]
            if s >= 0 and pair_at[after] != p:
                if right_number[s] == 0:
                    right_touched[rights] = s
                    rights += 1
                right_number[s] += 1
                right_count[s] += f
                new_position[found] = i
                new_side[found] = -1 - s
                found += 1
            symbol[i] = new
            pair_at[i] = 0
            span[i] = left_span + right_span
            span[after - 1] = left_span + right_span
        pair_count[p] = 0

        # Records for the new pairs that reach the floor.
        first = records
        for t in range(lefts):
            s = left_touched[t]
            if left_count[s] >= floor and may_merge(
                s, new, token_start, token_bytes, max_length, reserved, reserved_start
            ):
                pair_key[records] = (np.int64(s) << 32) | new
                pair_count[records] = left_count[s]
                pair_start[records] = used
                pair_end[records] = used
                used += left_number[s]
                left_number[s] = records
                records += 1
            else:
                left_number[s] = 0
            left_count[s] = 0
        for t in range(rights):
            s = right_touched[t]
            if right_count[s] >= floor and may_merge(
                new, s, token_start, token_bytes, max_length, reserved, reserved_start
            ):
                pair_key[records] = (new << 32) | np.int64(s)
                pair_count[records] = right_count[s]
                pair_start[records] = used
                pair_end[records] = used
                used += right_number[s]
                right_number[s] = records
                records += 1
            else:
                right_number[s] = 0
            right_count[s] = 0
        if records > first:
            for t in range(found):
                s = new_side[t]
                r = left_number[s] if s >= 0 else right_number[-1 - s]
                if r > 0:
                    at = new_position[t]
                    pair_at[at] = r
                    occurrence[pair_end[r]] = at
                    pair_end[r] += 1
        for t in range(lefts):
            left_number[left_touched[t]] = 0
        for t in range(rights):
            right_number[right_touched[t]] = 0
        for r in range(first, records):
            key = order_key(r, pair_key, pair_start, pair_end, pair_at, occurrence, tie)
            sift_up(
                heap_size,
                pair_count[r],
                key,
                r,
                heap_count,
                heap_key,
                heap_record,
                tie,
                token_head,
                token_start,
                token_bytes,
            )
            heap_size += 1
        state[STATE_HEAP] = heap_size
        state[STATE_RECORDS] = records
        state[STATE_OCCURRENCES] = used
        state[STATE_NEXT_ID] = new + 1
    return DONE
