"""Numba kernels of parity-aware BPE (``parity`` drives them and explains the algorithm).

Words and positions lie as in ``merge_kernels``, where ``words.count`` is what a word adds to the counts of its pairs, 0
for words of the development text. A record is a pair *in one group*. The records of one pair are born together and lie
side by side: a *family*, all or none of it recorded. Each group has a heap of its records of at least its floor, lazily
refreshed, in a segment of common arrays.

While ``together`` is set, groups are looked through: every word votes in group 0, the only one of ``queues``.
"""

from typing import NamedTuple

import numpy as np

from shardpiece.intrinsics import MIX_1, MIX_2
from shardpiece.kernel_cache import plain_kernel
from shardpiece.training.merge_kernels import (
    DONE,
    DRAINED,
    NEED_OCCURRENCES,
    NEED_RECORDS,
    NEED_TOKEN_BYTES,
    STATE_MERGES,
    STATE_NEED,
    STATE_NEXT_ID,
    STATE_OCCURRENCES,
    STATE_RECORDS,
    STATE_TOKEN_BYTES,
    Heap,
    remove_top,
    sift_down,
    sift_up,
)
from shardpiece.training.token_kernels import add_token, is_taken, joined_size, may_merge, take

EXHAUSTED = 11
NEED_HEAP = 12

_FLOAT_ERROR = 1e-14  # each quotient has a relative error of three roundings, 2^-53 each
_LOW_32 = np.int64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)


class Groups(NamedTuple):
    """Who the words belong to, and what the groups cost."""

    of_word: np.ndarray  # int32
    weight: np.ndarray  # int64, by word: what each of its tokens adds to its group's
    tokens: np.ndarray  # int64
    units: np.ndarray  # int64
    recent: np.ndarray  # int64, how often it was chosen within the window


class Pairs(NamedTuple):
    """The counted pairs of each group, in the order they were met; one of ``table`` per pair and group."""

    table: np.ndarray  # int32, power of two: open-addressing table of indices into the others, -1 = empty
    key: np.ndarray  # int64, left << 32 | right
    group: np.ndarray  # int32
    count: np.ndarray  # int64
    number: np.ndarray  # int32, occurrences
    record: np.ndarray  # int32, 0 = none


class Records(NamedTuple):
    """Pairs that are watched, by group; 0 is a dump. An occurrence i is live while pair_at[i] is the record."""

    key: np.ndarray  # int64
    group: np.ndarray  # int32
    family: np.ndarray  # int32, first record of the same pair
    count: np.ndarray  # int64
    start: np.ndarray  # int64, the occurrences are occurrence[start:end], ascending
    end: np.ndarray  # int64


class Queues(NamedTuple):
    """The voting groups' heaps: segment and size of each, and what is in it."""

    floor: np.ndarray  # int64, counts below have no entry
    out: np.ndarray  # bool, no pair is left
    start: np.ndarray  # int64 [groups + 1]
    size: np.ndarray  # int64


class Born(NamedTuple):
    """New pairs and groups of one merge, two for each occurrence at most, and the new positions."""

    side: np.ndarray  # int32, the other symbol s where it is on the left, else -1 - s
    group: np.ndarray  # int32
    count: np.ndarray  # int64
    number: np.ndarray  # int32
    next: np.ndarray  # int32, the same pair in a group before, -1 for none
    record: np.ndarray  # int32
    position: np.ndarray  # int32
    pair: np.ndarray  # int32, by position


@plain_kernel
def measure(data, starts, symbol_ids, spelled, groups, sizes):
    """Add every word's symbols to ``groups.tokens`` and its bytes to ``sizes`` (int64, by group), times its weight.
    ``spelled``: int64, bytes of each symbol; one outside the alphabet counts one."""
    mapped = len(symbol_ids) > 0
    for w in range(len(starts) - 1):
        size = np.int64(0)
        for i in range(starts[w], starts[w + 1]):
            s = symbol_ids[data[i]] if mapped else np.int32(data[i])
            size += spelled[s] if s >= 0 else np.int64(1)
        groups.tokens[groups.of_word[w]] += groups.weight[w] * (starts[w + 1] - starts[w])
        sizes[groups.of_word[w]] += groups.weight[w] * size


@plain_kernel
def add_laid_out(words, slots, groups, sign):
    """Add the symbols of the words laid out, less one for each piece, to ``groups.tokens``, times ``sign``."""
    for i in range(1, slots):
        w = words.word_at[i]
        if words.symbol[i] >= 0 and words.symbol[i - 1] >= 0:
            groups.tokens[groups.of_word[w]] += sign * groups.weight[w]


@plain_kernel
def count_pairs(words, slots, groups, together, pairs):
    """Count adjacent pairs by group. Leaves the index of each in ``pair_at`` (-1 for none) and resets ``span``. Returns
    how many there are, or -1 when ``pairs`` is too small."""
    symbol, word_at, span, pair_at, votes = words
    mask = len(pairs.table) - 1
    for h in range(len(pairs.table)):
        pairs.table[h] = -1
    for i in range(slots):
        span[i] = 1
        pair_at[i] = -1
    used = 0
    for i in range(1, slots - 1):
        if symbol[i] < 0 or symbol[i + 1] < 0:
            continue
        w = word_at[i]
        g = np.int32(0) if together else groups.of_word[w]
        key = (np.int64(symbol[i]) << 32) | np.int64(symbol[i + 1])
        h = np.int64(((np.uint64(key) ^ (np.uint64(g) * MIX_2)) * MIX_1) >> _SHIFT_32) & mask
        c = np.int64(pairs.table[h])
        while c >= 0 and (pairs.key[c] != key or pairs.group[c] != g):
            h = (h + 1) & mask
            c = np.int64(pairs.table[h])
        if c < 0:
            if used == len(pairs.key):
                return -1
            c = np.int64(used)
            used += 1
            pairs.table[h] = c
            pairs.key[c] = key
            pairs.group[c] = g
            pairs.count[c] = 0
            pairs.number[c] = 0
        pairs.count[c] += votes[w]
        pairs.number[c] += 1
        pair_at[i] = c
    return used


@plain_kernel
def select_pairs(order, pairs, queues, pushes, min_frequency, divisor, tokens, allowed, rules):
    """Set each group's floor to its best count / ``divisor``, at least ``min_frequency``, and number the records, from 1:
    the families with a member at its group's floor. Groups without a pair of ``min_frequency`` are out. ``order``:
    int64, what sorts the pairs by key; ``pushes``: int64, gets the heap entries by group. Returns (records with the
    dump, occurrences, occurrences of the longest family)."""
    for g in range(len(queues.floor)):
        queues.floor[g] = 0
        pushes[g] = 0
    n = len(order)
    a = 0
    while a < n:
        key = pairs.key[order[a]]
        fine = may_merge(key >> 32, key & _LOW_32, tokens, allowed, rules)
        while a < n and pairs.key[order[a]] == key:
            c = order[a]
            g = pairs.group[c]
            pairs.record[c] = fine
            if fine:
                queues.floor[g] = max(queues.floor[g], pairs.count[c])
            a += 1
    for g in range(len(queues.floor)):
        if queues.floor[g] < min_frequency:
            queues.out[g] = True
        queues.floor[g] = max(queues.floor[g] // divisor, min_frequency)
    records = np.int64(1)
    total = np.int64(0)
    longest = np.int64(0)
    a = 0
    while a < n:
        key = pairs.key[order[a]]
        b = a
        wanted = False
        size = np.int64(0)
        while b < n and pairs.key[order[b]] == key:
            c = order[b]
            size += pairs.number[c]
            if pairs.record[c] > 0 and pairs.count[c] >= queues.floor[pairs.group[c]]:
                wanted = True
                pushes[pairs.group[c]] += 1
            b += 1
        for x in range(a, b):
            pairs.record[order[x]] = records + x - a if wanted else 0
        if wanted:
            records += b - a
            total += size
            longest = max(longest, size)
        a = b
    return records, total, longest


@plain_kernel
def index_pairs(order, pairs, pair_at, slots, occurrence, records):
    """Create the records that select_pairs numbered, and their occurrence lists."""
    records.key[0] = -1
    records.count[0] = 0
    used = np.int64(0)
    for x in range(len(order)):
        c = order[x]
        r = np.int64(pairs.record[c])
        if r > 0:
            records.key[r] = pairs.key[c]
            records.group[r] = pairs.group[c]
            records.family[r] = records.family[r - 1] if records.key[r - 1] == pairs.key[c] else r
            records.count[r] = pairs.count[c]
            records.start[r] = used
            records.end[r] = used
            used += pairs.number[c]
    for i in range(slots):
        c = pair_at[i]
        r = np.int64(pairs.record[c]) if c >= 0 else np.int64(0)
        pair_at[i] = r
        if r > 0:
            occurrence[records.end[r]] = i
            records.end[r] += 1


@plain_kernel
def segment(g, heap, queues):
    """The heap of one group."""
    a = queues.start[g]
    b = queues.start[g + 1]
    return Heap(heap.count[a:b], heap.key[a:b], heap.record[a:b])


@plain_kernel
def push_records(first, last, records, heap, queues, tie, tokens):
    """Enter those of the records first <= r < last that reach their group's floor."""
    for r in range(first, last):
        g = records.group[r]
        if records.count[r] >= queues.floor[g]:
            sift_up(queues.size[g], records.count[r], records.key[r], r, segment(g, heap, queues), tie, tokens)
            queues.size[g] += 1


@plain_kernel
def costs_more(a, b, c, d):
    """Whether a / b > c / d exactly, for a, c >= 0 and b, d > 0 (int64). Where floats are too close to say, the continued
    fractions are compared, so that no product can overflow."""
    x = np.float64(a) / np.float64(b)
    y = np.float64(c) / np.float64(d)
    if abs(x - y) > _FLOAT_ERROR * (x + y):
        return x > y
    while True:
        p = a // b
        q = c // d
        if p != q:
            return p > q
        a -= p * b
        c -= q * d
        if a == 0:
            return False
        if c == 0:
            return True
        a, b, c, d = d, c, b, a


@plain_kernel
def worst_group(groups, out, cap):
    """The group of highest cost, the first of equals, among those that are not out and were chosen at most ``cap`` times
    within the window; when there is none, among all that are not out; -1 when all are."""
    worst = -1
    worst_allowed = -1
    for g in range(len(out)):
        if out[g]:
            continue
        if worst < 0 or costs_more(groups.tokens[g], groups.units[g], groups.tokens[worst], groups.units[worst]):
            worst = g
        if groups.recent[g] <= cap and (
            worst_allowed < 0
            or costs_more(groups.tokens[g], groups.units[g], groups.tokens[worst_allowed], groups.units[worst_allowed])
        ):
            worst_allowed = g
    return worst_allowed if worst_allowed >= 0 else worst


@plain_kernel
def best_pair(g, records, heap, queues, tie, tokens, allowed):
    """Refresh the top of a group's heap; returns its record, 0 when nothing is left above the floor."""
    own = segment(g, heap, queues)
    size = queues.size[g]
    best = np.int64(0)
    while size > 0:
        r = np.int64(own.record[0])
        count = records.count[r]
        key = own.key[0]
        if count < queues.floor[g]:  # for good
            size = remove_top(size, own, tie, tokens)
        elif count < own.count[0]:
            sift_down(size, count, key, r, own, tie, tokens)
        elif allowed.unique and is_taken(key >> 32, key & _LOW_32, tokens, allowed.taken):
            size = remove_top(size, own, tie, tokens)
        else:
            best = r
            break
    queues.size[g] = size
    return best


@plain_kernel
def add_born(n, side, group, born, latest):
    """Begin the n-th new pair of a merge, in one group; ``latest``: the same pair's in a group before."""
    born.side[n] = side
    born.group[n] = group
    born.count[n] = 0
    born.number[n] = 0
    born.next[n] = latest


@plain_kernel
def merge_pairs(
    words, groups, together, occurrence, records, heap, queues, min_frequency, window, cap, left_born, right_born, born,
    tie, tokens, allowed, rules, merge_key, merge_count, merge_group, limit, work, state,
):  # fmt: skip
    """Merge until ``limit`` merges are made or ``work`` occurrences visited (DONE), all groups are out (EXHAUSTED), the
    chosen group has nothing left above its floor (DRAINED), or an array must grow first (state[STATE_NEED] then says
    to how many elements; for NEED_HEAP, by how many entries a heap may grow).

    New pairs all contain the new symbol. They are gathered group by group in ``born``, so that ``left_born`` and
    ``right_born`` (int32, by the other symbol, -1 before and after) need to hold the latest of each alone.
    """
    symbol, word_at, span, pair_at, votes = words
    pair_count = records.count
    while state[STATE_MERGES] < limit and work > 0:
        if together:
            g = -1 if queues.out[0] else 0
        else:
            g = worst_group(groups, queues.out, cap)
        if g < 0:
            return EXHAUSTED
        p = best_pair(g, records, heap, queues, tie, tokens, allowed)
        if p == 0:
            if queues.floor[g] > min_frequency:
                return DRAINED
            queues.out[g] = True  # for good: a group's new pairs are never more frequent than those they came from
            continue

        # Make sure that everything the merge may create fits before anything changes.
        new = state[STATE_NEXT_ID]
        key = records.key[p]
        left_id = key >> 32
        right_id = key & _LOW_32
        first = np.int64(records.family[p])
        last = first
        occurrences = np.int64(0)
        most_born = np.int64(0)
        most_pushed = np.int64(0)
        heaps_fit = True
        while last < state[STATE_RECORDS] and records.key[last] == key:
            n = records.end[last] - records.start[last]
            occurrences += n
            n = min(2 * n, 2 * new + 2)
            most_born += n
            most_pushed = max(most_pushed, n)
            h = records.group[last]
            if queues.size[h] + n > queues.start[h + 1] - queues.start[h]:
                heaps_fit = False
            last += 1
        r = state[STATE_RECORDS]
        used = state[STATE_OCCURRENCES]
        if used + 2 * occurrences > len(occurrence):
            state[STATE_NEED] = used + 2 * occurrences
            return NEED_OCCURRENCES
        if r + most_born > len(records.key):
            state[STATE_NEED] = r + most_born
            return NEED_RECORDS
        if not heaps_fit:
            state[STATE_NEED] = most_pushed
            return NEED_HEAP
        end = state[STATE_TOKEN_BYTES]
        size = joined_size(left_id, right_id, tokens)
        if end + size > len(tokens.data):
            state[STATE_NEED] = end + size
            return NEED_TOKEN_BYTES
        add_token(new, end, left_id, right_id, tokens, allowed.prefix)
        state[STATE_TOKEN_BYTES] = end + size
        if allowed.unique:
            take(new, tokens, allowed.taken)
        m = state[STATE_MERGES]
        merge_key[m] = key
        merge_count[m] = pair_count[p]
        merge_group[m] = -1
        if not together:
            merge_group[m] = g
            groups.recent[g] += 1
            if m >= window and merge_group[m - window] >= 0:
                groups.recent[merge_group[m - window]] -= 1
        state[STATE_MERGES] = m + 1
        work -= occurrences

        # Replace the occurrences, group by group, left to right.
        found = 0
        borns = 0
        for q in range(first, last):
            group = records.group[q]
            of_group = borns
            for z in range(records.start[q], records.end[q]):
                i = np.int64(occurrence[z])
                if pair_at[i] != q:
                    continue
                left_span = np.int64(span[i])
                j = i + left_span
                right_span = np.int64(span[j])
                after = j + right_span
                w = word_at[i]
                f = votes[w]
                groups.tokens[groups.of_word[w]] -= groups.weight[w]
                if symbol[i - 1] >= 0:
                    before = i - np.int64(span[i - 1])
                    s = symbol[before]
                    pair_count[pair_at[before]] -= f
                    pair_at[before] = 0
                    c = np.int64(left_born[s])
                    if c < of_group:
                        add_born(borns, s, group, born, c)
                        c = np.int64(borns)
                        left_born[s] = c
                        borns += 1
                    born.count[c] += f
                    born.number[c] += 1
                    born.position[found] = before
                    born.pair[found] = c
                    found += 1
                pair_count[pair_at[j]] -= f
                pair_at[j] = 0
                s = symbol[after]
                if s >= 0 and pair_at[after] != q:
                    c = np.int64(right_born[s])
                    if c < of_group:
                        add_born(borns, -1 - s, group, born, c)
                        c = np.int64(borns)
                        right_born[s] = c
                        borns += 1
                    born.count[c] += f
                    born.number[c] += 1
                    born.position[found] = i
                    born.pair[found] = c
                    found += 1
                symbol[i] = new
                pair_at[i] = 0
                span[i] = left_span + right_span
                span[after - 1] = left_span + right_span
            pair_count[q] = 0

        # Records for the families with a member that reaches its group's floor. A family is met at its latest member.
        old = r
        for t in range(borns - 1, -1, -1):
            side = np.int64(born.side[t])
            s = side if side >= 0 else -1 - side
            if (left_born[s] if side >= 0 else right_born[s]) != t:
                continue
            left_id = s if side >= 0 else new
            right_id = new if side >= 0 else s
            wanted = False
            c = np.int64(t)
            while c >= 0 and not wanted:
                wanted = born.count[c] >= queues.floor[born.group[c]]
                c = np.int64(born.next[c])
            wanted = wanted and may_merge(left_id, right_id, tokens, allowed, rules)
            family = r
            c = np.int64(t)
            while c >= 0:
                born.record[c] = 0
                if wanted:
                    born.record[c] = r
                    records.key[r] = (left_id << 32) | right_id
                    records.group[r] = born.group[c]
                    records.family[r] = family
                    pair_count[r] = born.count[c]
                    records.start[r] = used
                    records.end[r] = used
                    used += born.number[c]
                    r += 1
                c = np.int64(born.next[c])
        for t in range(borns):
            side = born.side[t]
            if side >= 0:
                left_born[side] = -1
            else:
                right_born[-1 - side] = -1
        if r > old:
            for t in range(found):
                q = np.int64(born.record[born.pair[t]])
                if q > 0:
                    at = born.position[t]
                    pair_at[at] = q
                    occurrence[records.end[q]] = at
                    records.end[q] += 1
            push_records(old, r, records, heap, queues, tie, tokens)
        state[STATE_RECORDS] = r
        state[STATE_OCCURRENCES] = used
        state[STATE_NEXT_ID] = new + 1
    return DONE
