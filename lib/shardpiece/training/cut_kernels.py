"""Numba kernels that shrink a word table exactly (``cut`` drives them and proves why they may).

Words are (symbols int32, starts int64 [w + 1], counts int64 [w]): word w is symbols[starts[w]:starts[w + 1]], and -1 is a
border inside a word. A pair is the key left << 32 | right, never negative.

Pair table: ``keys`` and ``totals`` (int64 [slots], a power of two of them), -1 = empty. Pair set: ``keys`` alone; an
empty array stands for the set of all pairs.

Piece table: ``arena`` (int32) holds the distinct pieces one after the other, ``piece_starts`` (int64) where each begins,
``piece_counts`` (int64) how often it was met, and ``slots`` (int64) is an open-addressing index: 32 bits of the hash
above the number of the piece plus one, 0 = empty. ``state`` (int64 [2]): pieces, symbols in the arena.

The kernels that fill a table stop before the word that might not fit and return its index; the caller gives them a
larger table and goes on there.
"""

import numpy as np

from shardpiece.intrinsics import MIX_1, MIX_2
from shardpiece.kernel_cache import kernel
from shardpiece.tokenizer.pair_kernels import merge_scan
from shardpiece.tokenizer.symbol_kernels import merge_long

STATE_PIECES = 0
STATE_SYMBOLS = 1
STATE_SIZE = 2

_SHIFT_32 = np.uint64(32)
_SHIFT_29 = np.uint64(29)
_LOW_32 = np.int64(0xFFFFFFFF)
SCANNED = 48  # symbols of a word up to which looking at all pairs beats a heap


@kernel
def layout_words(data, starts, counts, symbol_ids, symbols, out_starts, out_counts):
    """Write the words of two symbols or more one after the other, each part between borders as a word of its own.

    ``data``: uint8 (looked up in ``symbol_ids``, int32 [256]) or int32 (``symbol_ids`` empty). The outputs have room for
    len(data) symbols and as many words as count_parts says. Returns the number of words and of symbols.
    """
    words = 0
    at = np.int64(0)
    out_starts[0] = 0
    for w in range(len(counts)):
        first = at
        for i in range(starts[w], starts[w + 1] + 1):
            symbol = np.int32(-1)
            if i < starts[w + 1]:
                symbol = symbol_ids[data[i]] if len(symbol_ids) > 0 else np.int32(data[i])
            if symbol >= 0:
                symbols[at] = symbol
                at += 1
            elif at - first > 1:
                out_counts[words] = counts[w]
                words += 1
                out_starts[words] = at
                first = at
            else:
                at = first
    return words, at


@kernel
def count_parts(data, starts, symbol_ids):
    """The number of parts of two symbols or more and of their symbols, as layout_words writes them."""
    parts = 0
    symbols = np.int64(0)
    for w in range(len(starts) - 1):
        length = 0
        for i in range(starts[w], starts[w + 1]):
            symbol = symbol_ids[data[i]] if len(symbol_ids) > 0 else np.int32(data[i])
            if symbol >= 0:
                length += 1
            else:
                if length > 1:
                    parts += 1
                    symbols += length
                length = 0
        if length > 1:
            parts += 1
            symbols += length
    return parts, symbols


@kernel
def merge_words(symbols, starts, counts, pairs, merged):
    """Apply merges to every word (lowest rank first, leftmost first), in place; words of one symbol go. The words have no
    borders. ``pairs`` and ``merged`` are those of the encoder. Returns the number of words and of symbols left."""
    tokens = np.empty(SCANNED, np.int32)
    ranks = np.empty(SCANNED, np.int64)
    words = 0
    at = np.int64(0)
    start = starts[0]
    for w in range(len(counts)):
        end = starts[w + 1]
        n = end - start
        if n <= SCANNED:
            for i in range(n):
                tokens[i] = symbols[start + i]
            n, _ = merge_scan(tokens, n, pairs, merged, ranks)
            for i in range(n):
                symbols[at + i] = tokens[i]
        else:
            n = merge_long(symbols[start:end].copy(), n, pairs, merged, symbols, at)
        if n > 1:
            at += n
            counts[words] = counts[w]
            words += 1
            starts[words] = at
        start = end
    return words, at


@kernel
def add_symbol_counts(symbols, starts, counts, single):
    """Add to ``single`` (int64, by symbol) how often each symbol stands in the words."""
    for w in range(len(counts)):
        for i in range(starts[w], starts[w + 1]):
            if symbols[i] >= 0:
                single[symbols[i]] += counts[w]


@kernel
def find_pair(key, keys):
    """The slot of a pair in a pair table or set, or the empty one where it belongs."""
    mask = len(keys) - 1
    h = np.int64((np.uint64(key) * MIX_1) >> _SHIFT_32) & mask
    while keys[h] != key and keys[h] >= 0:
        h = (h + 1) & mask
    return h


@kernel
def add_pair_counts(symbols, starts, counts, first_word, single, floor, keys, totals, used):
    """Add the adjacent pairs of the words from ``first_word`` on. Pairs with a symbol that ``single`` counts less than
    ``floor`` times cannot reach it and are left out. Returns (next word, pairs in the table)."""
    limit = len(keys) - (len(keys) >> 2)
    for w in range(first_word, len(counts)):
        if used + starts[w + 1] - starts[w] > limit:
            return w, used
        for i in range(starts[w], starts[w + 1] - 1):
            a = symbols[i]
            b = symbols[i + 1]
            if a >= 0 and b >= 0 and single[a] >= floor and single[b] >= floor:
                key = (np.int64(a) << 32) | np.int64(b)
                h = find_pair(key, keys)
                if keys[h] < 0:
                    keys[h] = key
                    totals[h] = 0
                    used += 1
                totals[h] += counts[w]
    return len(counts), used


@kernel
def add_table(keys, totals, into_keys, into_totals):
    """Add all pairs of one pair table to another, which has room; returns the number of those it had not."""
    new = 0
    for h in range(len(keys)):
        if keys[h] >= 0:
            q = find_pair(keys[h], into_keys)
            if into_keys[q] < 0:
                into_keys[q] = keys[h]
                into_totals[q] = 0
                new += 1
            into_totals[q] += totals[h]
    return new


@kernel
def fill_set(pairs, keys):
    """Enter ``pairs`` (int64) into an empty pair set."""
    for i in range(len(pairs)):
        keys[find_pair(pairs[i], keys)] = pairs[i]


@kernel
def add_pieces(symbols, starts, counts, first_word, kept, arena, piece_starts, piece_counts, slots, state):
    """Cut the words from ``first_word`` on between symbols whose pair is not in the set ``kept``, and add the pieces of
    two symbols or more to the piece table. Returns the next word."""
    mask = len(slots) - 1
    room = min(len(piece_counts), len(slots) - (len(slots) >> 2))
    pieces = state[STATE_PIECES]
    end = state[STATE_SYMBOLS]
    for w in range(first_word, len(counts)):
        stop = starts[w + 1]
        n = stop - starts[w]
        if pieces + n // 2 > room or end + n > len(arena):
            state[STATE_PIECES] = pieces
            state[STATE_SYMBOLS] = end
            return w
        i = starts[w]
        while i < stop - 1:
            # The piece from i: symbols up to the first pair that is cut.
            h = np.uint64(0)
            j = i
            while symbols[j] >= 0:
                h = (h ^ np.uint64(symbols[j])) * MIX_1
                h ^= h >> _SHIFT_29
                j += 1
                if j == stop or symbols[j] < 0:
                    break
                if len(kept) > 0:
                    key = (np.int64(symbols[j - 1]) << 32) | np.int64(symbols[j])
                    if kept[find_pair(key, kept)] < 0:
                        break
            length = j - i
            if length > 1:
                h = (h ^ np.uint64(length)) * MIX_2
                tag = np.int64(h >> _SHIFT_32)
                q = np.int64(h ^ (h >> _SHIFT_29)) & mask
                while True:
                    entry = slots[q]
                    if entry == 0:
                        for k in range(length):
                            arena[end + k] = symbols[i + k]
                        slots[q] = (tag << 32) | (pieces + 1)
                        piece_starts[pieces] = end
                        piece_counts[pieces] = counts[w]
                        end += length
                        pieces += 1
                        piece_starts[pieces] = end
                        break
                    if (entry >> 32) & _LOW_32 == tag:
                        p = (entry & _LOW_32) - 1
                        a = piece_starts[p]
                        if piece_starts[p + 1] - a == length:
                            k = 0
                            while k < length and arena[a + k] == symbols[i + k]:
                                k += 1
                            if k == length:
                                piece_counts[p] += counts[w]
                                break
                    q = (q + 1) & mask
            i = max(j, i + 1)
    state[STATE_PIECES] = pieces
    state[STATE_SYMBOLS] = end
    return len(counts)


@kernel
def index_pieces(arena, piece_starts, pieces, slots):
    """Enter the pieces, all different, into an empty index."""
    mask = len(slots) - 1
    for p in range(pieces):
        h = np.uint64(0)
        for i in range(piece_starts[p], piece_starts[p + 1]):
            h = (h ^ np.uint64(arena[i])) * MIX_1
            h ^= h >> _SHIFT_29
        h = (h ^ np.uint64(piece_starts[p + 1] - piece_starts[p])) * MIX_2
        q = np.int64(h ^ (h >> _SHIFT_29)) & mask
        while slots[q] != 0:
            q = (q + 1) & mask
        slots[q] = (np.int64(h >> _SHIFT_32) << 32) | (p + 1)


@kernel
def _symbol(symbols, starts, p, depth):
    """Symbol number ``depth`` of a piece, -1 at its end."""
    i = starts[p] + depth
    return symbols[i] if i < starts[p + 1] else np.int32(-1)


@kernel
def sort_pieces(symbols, starts, order):
    """Sort ``order`` (int32, numbers of pieces) by their symbols: multikey quicksort (Bentley and Sedgewick 1997)."""
    # The smallest part is sorted first and at least halves: two parts wait per level.
    stack = np.empty((128, 3), np.int64)
    size = 1
    stack[0] = 0, len(order), 0
    part = np.empty((3, 3), np.int64)
    while size > 0:
        size -= 1
        low, high, depth = stack[size]
        if high - low < 2:
            continue
        if high - low <= 8:
            for i in range(low + 1, high):
                p = order[i]
                j = i
                while j > low:
                    q = order[j - 1]
                    d = depth
                    a = _symbol(symbols, starts, p, d)
                    b = _symbol(symbols, starts, q, d)
                    while a == b and a >= 0:
                        d += 1
                        a = _symbol(symbols, starts, p, d)
                        b = _symbol(symbols, starts, q, d)
                    if a >= b:
                        break
                    order[j] = q
                    j -= 1
                order[j] = p
            continue
        # The median of three places that depend on the part alone.
        a = _symbol(symbols, starts, order[low], depth)
        b = _symbol(symbols, starts, order[(low + high) >> 1], depth)
        c = _symbol(symbols, starts, order[high - 1], depth)
        pivot = max(min(a, b), min(max(a, b), c))
        less = low
        i = low
        more = high
        while i < more:
            p = order[i]
            value = _symbol(symbols, starts, p, depth)
            if value < pivot:
                order[i] = order[less]
                order[less] = p
                less += 1
                i += 1
            elif value > pivot:
                more -= 1
                order[i] = order[more]
                order[more] = p
            else:
                i += 1
        part[0] = low, less, depth
        part[1] = less, more if pivot >= 0 else less, depth + 1
        part[2] = more, high, depth
        # Largest below, smallest on top.
        for x in range(2):
            for y in range(2 - x):
                if part[y, 1] - part[y, 0] < part[y + 1, 1] - part[y + 1, 0]:
                    for z in range(3):
                        t = part[y, z]
                        part[y, z] = part[y + 1, z]
                        part[y + 1, z] = t
        for x in range(3):
            stack[size] = part[x]
            size += 1


@kernel
def gather_pieces(symbols, starts, counts, order, out, out_starts, out_counts):
    """Copy the pieces in ``order``."""
    at = np.int64(0)
    out_starts[0] = 0
    for k in range(len(order)):
        p = order[k]
        for i in range(starts[p], starts[p + 1]):
            out[at] = symbols[i]
            at += 1
        out_starts[k + 1] = at
        out_counts[k] = counts[p]
