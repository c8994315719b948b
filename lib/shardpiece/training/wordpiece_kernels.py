"""Numba kernels of WordPiece training by likelihood (``wordpiece`` drives them and explains the algorithm).

Words, pairs, their occurrences and the tokens' spellings are kept as in ``merge_kernels`` and ``token_kernels``; what is
different here is the order of the pairs.
"""

from typing import NamedTuple

import numpy as np

from shardpiece.kernel_cache import plain_kernel
from shardpiece.training.merge_kernels import (
    DONE,
    DRAINED,
    NEED_OCCURRENCES,
    NEED_RECORDS,
    NEED_TOKEN_BYTES,
    STATE_HEAP,
    STATE_MERGES,
    STATE_NEED,
    STATE_NEXT_ID,
    STATE_OCCURRENCES,
    STATE_RECORDS,
    STATE_TOKEN_BYTES,
)
from shardpiece.training.token_kernels import add_token, compare_tokens, is_taken, joined_size, may_merge, take

_LOW_32 = np.int64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)
_HALF = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_SMALL = np.int64(1 << 21)
# Five roundings of at most 2^-53 each lie between a score and its float64.
_SURE = 1.0 + 2.0**-48


class Order(NamedTuple):
    """The records in order of their score: a binary heap with the best on top, and what it takes to keep it right."""

    record: np.ndarray  # int32, by place in the heap
    score: np.ndarray  # float64, by place in the heap: the score up to rounding
    place: np.ndarray  # int32, by record: where it stands in the heap, -1 when it is out for good
    known: np.ndarray  # int64 [records, 3]: counts of pair, left and right symbol that the record was last ordered by
    next_left: np.ndarray  # int32, by record: the next one with the same left symbol, 0 at the end
    next_right: np.ndarray  # int32, by record: the next one with the same right symbol
    first_left: np.ndarray  # int32, by symbol: the first record with it on the left, 0 for none
    first_right: np.ndarray  # int32, by symbol
    symbol_count: np.ndarray  # int64, by symbol: how often it stands in the table


class Grouping(NamedTuple):
    """Scratch to group new pairs by their other symbol. The first four are indexed by symbol and return zeroed."""

    left_count: np.ndarray  # int64
    right_count: np.ndarray  # int64
    left_number: np.ndarray  # int32: occurrences, then the record
    right_number: np.ndarray  # int32
    left_touched: np.ndarray  # int32, the symbols with occurrences
    right_touched: np.ndarray  # int32
    position: np.ndarray  # int32, two per occurrence
    side: np.ndarray  # int32, likewise


@plain_kernel
def multiply(a, b):
    """The 128 bits of the product of two uint64: (high, low)."""
    a0, a1 = a & _HALF, a >> _SHIFT_32
    b0, b1 = b & _HALF, b >> _SHIFT_32
    low = a0 * b0
    middle = a1 * b0 + (low >> _SHIFT_32)
    other = a0 * b1 + (middle & _HALF)
    high = a1 * b1 + (middle >> _SHIFT_32) + (other >> _SHIFT_32)
    return high, (other << _SHIFT_32) | (low & _HALF)


@plain_kernel
def multiply_three(a, b, c):
    """The 192 bits of the product of three positive int64: (high, middle, low) uint64."""
    high, low = multiply(np.uint64(a), np.uint64(b))
    carry, p0 = multiply(low, np.uint64(c))
    p2, p1 = multiply(high, np.uint64(c))
    p1 += carry
    if p1 < carry:
        p2 += _ONE
    return p2, p1, p0


@plain_kernel
def compare_products(a, b, c, x, y, z):
    """-1, 0 or 1 as a·b·c is less than, equal to or more than x·y·z, for positive int64, exactly."""
    if max(a, b, c) < _SMALL and max(x, y, z) < _SMALL:
        p, q = a * b * c, x * y * z
        return 0 if p == q else 1 if p > q else -1
    p2, p1, p0 = multiply_three(a, b, c)
    q2, q1, q0 = multiply_three(x, y, z)
    if p2 != q2:
        return 1 if p2 > q2 else -1
    if p1 != q1:
        return 1 if p1 > q1 else -1
    return 0 if p0 == q0 else 1 if p0 > q0 else -1


@plain_kernel
def goes_first(r, r_score, s, s_score, known, keys, tokens):
    """Whether record r goes before record s: by the score, exactly, then by the count of the pair, then by the spelling
    of its left and of its right symbol."""
    if r_score > s_score * _SURE:
        return True
    if s_score > r_score * _SURE:
        return False
    order = compare_products(known[r, 0], known[s, 1], known[s, 2], known[s, 0], known[r, 1], known[r, 2])
    if order != 0:
        return order > 0
    if known[r, 0] != known[s, 0]:
        return known[r, 0] > known[s, 0]
    order = compare_tokens(keys[r] >> 32, keys[s] >> 32, tokens)
    if order == 0:
        order = compare_tokens(keys[r] & _LOW_32, keys[s] & _LOW_32, tokens)
    return order < 0


@plain_kernel
def settle(x, size, r, score, order, keys, tokens):
    """Put record r into a heap of ``size`` entries, whose entry x is free: there, above or below."""
    record, scores, place, known = order.record, order.score, order.place, order.known
    while x > 0:
        y = (x - 1) >> 1
        s = record[y]
        if not goes_first(r, score, s, scores[y], known, keys, tokens):
            break
        record[x] = s
        scores[x] = scores[y]
        place[s] = x
        x = y
    while True:
        y = 2 * x + 1
        if y >= size:
            break
        if y + 1 < size and goes_first(record[y + 1], scores[y + 1], record[y], scores[y], known, keys, tokens):
            y += 1
        s = record[y]
        if not goes_first(s, scores[y], r, score, known, keys, tokens):
            break
        record[x] = s
        scores[x] = scores[y]
        place[s] = x
        x = y
    record[x] = r
    scores[x] = score
    place[r] = x


@plain_kernel
def remove(r, size, order, keys, tokens):
    """Take record r out of a heap of ``size`` entries for good; returns the new size."""
    x = np.int64(order.place[r])
    order.place[r] = -1
    size -= 1
    if x < size:
        settle(x, size, np.int64(order.record[size]), order.score[size], order, keys, tokens)
    return size


@plain_kernel
def refresh(r, size, floor, order, records, tokens):
    """Order record r, which is in the heap of ``size`` entries, by the present counts; take it out when the pair is rarer
    than ``floor``. Returns the size."""
    n = records.count[r]
    if n < floor:
        return remove(r, size, order, records.key, tokens)
    a = order.symbol_count[records.key[r] >> 32]
    b = order.symbol_count[records.key[r] & _LOW_32]
    known = order.known
    if known[r, 0] != n or known[r, 1] != a or known[r, 2] != b:
        known[r, 0] = n
        known[r, 1] = a
        known[r, 2] = b
        score = np.float64(n) / (np.float64(a) * np.float64(b))
        settle(np.int64(order.place[r]), size, r, score, order, records.key, tokens)
    return size


@plain_kernel
def refresh_chain(s, first, following, size, floor, order, records, tokens):
    """Refresh every record in the chain of symbol s and unlink those that are out. Returns the size of the heap."""
    before = np.int64(0)
    r = np.int64(first[s])
    while r > 0:
        after = np.int64(following[r])
        if order.place[r] >= 0:
            size = refresh(r, size, floor, order, records, tokens)
        if order.place[r] >= 0:
            before = r
        elif before > 0:
            following[before] = after
        else:
            first[s] = after
        r = after
    return size


@plain_kernel
def enter(first, last, size, floor, order, records, tokens):
    """Chain the new records first <= r < last and put them into the heap. Returns its size."""
    for r in range(first, last):
        a, b = records.key[r] >> 32, records.key[r] & _LOW_32
        order.next_left[r] = order.first_left[a]
        order.first_left[a] = r
        order.next_right[r] = order.first_right[b]
        order.first_right[b] = r
        order.known[r, 0] = 0  # so that it counts as changed
        order.place[r] = size
        size = refresh(r, size + 1, floor, order, records, tokens)
    return size


@plain_kernel
def drop_dead_occurrences(occurrence, pair_at, order, records, state):
    """Keep those occurrences that can still be merged, in order."""
    used = np.int64(0)
    for r in range(1, state[STATE_RECORDS]):
        start = used
        if order.place[r] >= 0:
            for z in range(records.start[r], records.end[r]):
                if pair_at[occurrence[z]] == r:
                    occurrence[used] = occurrence[z]
                    used += 1
        records.start[r] = start
        records.end[r] = used
    state[STATE_OCCURRENCES] = used


@plain_kernel
def merge_pairs(
    words,
    floor,
    occurrence,
    records,
    order,
    grouping,
    tokens,
    allowed,
    rules,
    merge_key,
    merge_known,
    limit,
    work,
    state,
):
    """Merge the best pairs until ``limit`` merges are made or ``work`` occurrences and pairs visited, no pair of at least
    ``floor`` is left, or an array must grow first (state[STATE_NEED] then says to how many elements).

    As merge_kernels.merge_pairs, but for the order. ``merge_key`` (int64) and ``merge_known`` (int64 [merges, 3])
    receive each merge and the counts that decided it.
    """
    symbol, word_at, span, pair_at, word_count = words.symbol, words.word_at, words.span, words.pair_at, words.count
    left_count, right_count, left_number, right_number, left_touched, right_touched, new_position, new_side = grouping
    pair_count = records.count
    while state[STATE_MERGES] < limit and work > 0:
        heap_size = state[STATE_HEAP]
        if heap_size == 0:
            return DRAINED
        p = np.int64(order.record[0])
        left_id = records.key[p] >> 32
        right_id = records.key[p] & _LOW_32
        if allowed.unique and is_taken(left_id, right_id, tokens, allowed.taken):
            state[STATE_HEAP] = remove(p, heap_size, order, records.key, tokens)
            continue

        # The best pair. Make sure that everything it may create fits before anything changes.
        new = state[STATE_NEXT_ID]
        occurrences = records.end[p] - records.start[p]
        r = state[STATE_RECORDS]
        used = state[STATE_OCCURRENCES]
        if used + 2 * occurrences > len(occurrence):
            state[STATE_NEED] = used + 2 * occurrences
            return NEED_OCCURRENCES
        born = min(2 * occurrences, 2 * new + 2)
        if r + born > len(records.key):
            state[STATE_NEED] = r + born
            return NEED_RECORDS
        end = state[STATE_TOKEN_BYTES]
        size = joined_size(left_id, right_id, tokens)
        if end + size > len(tokens.data):
            state[STATE_NEED] = end + size
            return NEED_TOKEN_BYTES
        add_token(new, end, left_id, right_id, tokens, allowed.prefix)
        state[STATE_TOKEN_BYTES] = end + size
        if allowed.unique:
            take(new, tokens, allowed.taken)
        merge_key[state[STATE_MERGES]] = records.key[p]
        for i in range(3):
            merge_known[state[STATE_MERGES], i] = order.known[p, i]
        state[STATE_MERGES] += 1
        work -= occurrences

        # Replace the occurrences, left to right.
        found = 0
        lefts = 0
        rights = 0
        total = np.int64(0)
        for z in range(records.start[p], records.end[p]):
            i = np.int64(occurrence[z])
            if pair_at[i] != p:
                continue
            left_span = np.int64(span[i])
            j = i + left_span
            right_span = np.int64(span[j])
            after = j + right_span
            f = word_count[word_at[i]]
            total += f
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
        order.symbol_count[left_id] -= total
        order.symbol_count[right_id] -= total
        order.symbol_count[new] = total

        # Every pair with one of the two symbols, among them all whose count fell, has a new score.
        heap_size = refresh_chain(left_id, order.first_left, order.next_left, heap_size, floor, order, records, tokens)
        heap_size = refresh_chain(
            left_id, order.first_right, order.next_right, heap_size, floor, order, records, tokens
        )
        if right_id != left_id:
            heap_size = refresh_chain(
                right_id, order.first_left, order.next_left, heap_size, floor, order, records, tokens
            )
            heap_size = refresh_chain(
                right_id, order.first_right, order.next_right, heap_size, floor, order, records, tokens
            )

        # Records for the new pairs that reach the floor.
        first = r
        for t in range(lefts):
            s = np.int64(left_touched[t])
            if left_count[s] >= floor and may_merge(s, new, tokens, allowed, rules):
                records.key[r] = (s << 32) | new
                pair_count[r] = left_count[s]
                records.start[r] = used
                records.end[r] = used
                used += left_number[s]
                left_number[s] = r
                r += 1
            else:
                left_number[s] = 0
            left_count[s] = 0
        for t in range(rights):
            s = np.int64(right_touched[t])
            if right_count[s] >= floor and may_merge(new, s, tokens, allowed, rules):
                records.key[r] = (new << 32) | s
                pair_count[r] = right_count[s]
                records.start[r] = used
                records.end[r] = used
                used += right_number[s]
                right_number[s] = r
                r += 1
            else:
                right_number[s] = 0
            right_count[s] = 0
        if r > first:
            for t in range(found):
                s = new_side[t]
                q = left_number[s] if s >= 0 else right_number[-1 - s]
                if q > 0:
                    at = new_position[t]
                    pair_at[at] = q
                    occurrence[records.end[q]] = at
                    records.end[q] += 1
        for t in range(lefts):
            left_number[left_touched[t]] = 0
        for t in range(rights):
            right_number[right_touched[t]] = 0
        state[STATE_HEAP] = enter(first, r, heap_size, floor, order, records, tokens)
        state[STATE_RECORDS] = r
        state[STATE_OCCURRENCES] = used
        state[STATE_NEXT_ID] = new + 1
    return DONE
