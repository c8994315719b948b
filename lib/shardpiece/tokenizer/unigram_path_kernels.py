"""Numba kernels that normalize and segment one piece of ``raw_unigram_kernels``: those of ``viterbi_kernels`` and
``charsmap_kernels`` for what is short, without branches where a piece of the model ends.

``cells``: uint64 [2 * slots], the trie: of each slot the node as in ``nodes`` of ``viterbi_kernels``, and the score of the piece
that ends there, -inf for none, which ``cell_scores`` (float64) has too: the same memory.
"""

import numpy as np

from shardpiece.intrinsics import get, put
from shardpiece.kernel_cache import inlined_kernel, plain_kernel
from shardpiece.text.normalization.character_kernels import decode
from shardpiece.text.normalization.charsmap_kernels import longest_rule
from shardpiece.tokenizer.viterbi_kernels import LIMITS, RESET, UNKNOWN

AT_ONCE = 1000
"""Bytes of a normalized piece that is segmented as a whole."""

_SPACE = 0x20
_NONE = -np.inf
_NONE_32 = np.float32(-np.inf)
_RESET = np.float32(RESET)
_LOW_32 = np.uint64(0xFFFFFFFF)
_32, _33 = np.uint64(32), np.uint64(33)
_ONE = np.uint64(1)
_MOST_LEVEL = int(np.flatnonzero(LIMITS < RESET)[-1])


@inlined_kernel
def normalize_piece(data, start, stop, marked, units, targets, symbols, plain, pages, begins, text):
    """What a piece becomes into ``text`` (uint8 [AT_ONCE + 8]); returns its length, -1 where there is a space in it, a
    symbol, nothing, or too much."""
    n = np.int64(0)
    if marked:
        put(text, 0, np.uint8(0xE2))
        put(text, 1, np.uint8(0x96))
        put(text, 2, np.uint8(0x81))
        n = np.int64(3)
    i = start
    while i < stop:
        if n >= AT_ONCE:
            return np.int64(-1)
        b = get(data, i)
        if b < 0x80 and (i + 1 == stop or get(data, i + 1) < 0x80):
            if get(plain, np.int64(b)) != b:
                return np.int64(-1)
            put(text, n, b)
            n += 1
            i += 1
            continue
        c, width = decode(data, i)
        if begins[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)]:
            if len(symbols) > 0:
                return np.int64(-1)
            length, value = longest_rule(units, data, i, stop)
            if length > 0:
                if targets[value] == 0:
                    return np.int64(-1)
                while targets[value] != 0:
                    if targets[value] == _SPACE or n >= AT_ONCE:
                        return np.int64(-1)
                    put(text, n, targets[value])
                    n += 1
                    value += 1
                i += length
                continue
        for k in range(width):
            put(text, n + k, get(data, i + k))
        n += width
        i += width
    return n if n <= AT_ONCE else np.int64(-1)


@inlined_kernel
def best_paths(text, n, cells, cell_scores, unknown_score, best, second, node_at, begin_at):
    """``two_best`` of ``viterbi_kernels`` for text[:n] without branches where a piece ends."""
    put(best, 0, 0.0)
    put(second, 0, _NONE)
    for j in range(1, n + 1):
        put(best, j, _NONE)
        put(second, j, _NONE)
    i = np.int64(0)
    widest = 0.0
    characters = np.int64(0)
    root = np.int64(get(cells, 0) >> _33)
    while i < n:
        score = get(best, i)
        below = get(second, i)
        widest = max(widest, abs(score))
        characters += 1
        b = get(text, i)
        single = np.int64(1) + np.int64(b >= 0xC0) + np.int64(b >= 0xE0) + np.int64(b >= 0xF0)
        single = min(single, n - i)
        has_single = False
        node = np.uint64(0)
        base = root
        j = i
        while j < n:
            t = base + np.int64(get(text, j))
            unit = get(cells, 2 * t)
            if unit & _LOW_32 != node:
                break
            weight = get(cell_scores, 2 * t + 1)
            node = np.uint64(t)
            base = np.int64(unit >> _33)
            j += 1
            has_single |= (j - i == single) & (((unit >> _32) & _ONE) != 0)
            candidate = score + weight
            old = get(best, j)
            better = candidate > old
            put(second, j, max(max(get(second, j), below + weight), min(old, candidate)))
            put(best, j, candidate if better else old)
            put(node_at, j, np.int32(t) if better else get(node_at, j))
            put(begin_at, j, np.int32(i) if better else get(begin_at, j))
        if not has_single:
            j = i + single
            candidate = score + unknown_score
            old = get(best, j)
            better = candidate > old
            put(second, j, max(max(get(second, j), below + unknown_score), min(old, candidate)))
            put(best, j, candidate if better else old)
            put(node_at, j, UNKNOWN if better else get(node_at, j))
            put(begin_at, j, np.int32(i) if better else get(begin_at, j))
        i += single
    return max(widest, abs(get(best, n))), characters


@inlined_kernel
def narrow_level(margin, widest, count, limits):
    """The number of the last of the limits below which the sum before a segment may lie, for its best path to be the one
    from 0: see ``viterbi_kernels``. ``count``: of the path's pieces and the segment's characters."""
    reach = margin * 2.0**24 / (1.01 * np.float64(max(count, 1))) - widest - 1.0
    reach = min(reach, RESET - widest - 1.0)
    level = np.int64(_MOST_LEVEL)
    while level > 0 and limits[level] > reach:
        level -= 1
    return np.uint64(level)


@plain_kernel
def follow_narrow(text, n, total, cells, cell_scores, unknown_score, sums, node_at, begin_at):
    """The narrow ``follow`` of ``viterbi_kernels`` for text[:n] with ``sums`` (float32) for ``best``."""
    put(sums, 0, np.float32(total))
    for j in range(1, n + 1):
        put(sums, j, _NONE_32)
    unknown = np.float32(unknown_score)
    root = np.int64(get(cells, 0) >> _33)
    front = np.int64(0)
    i = np.int64(0)
    while i < n:
        score = get(sums, i)
        if abs(score) > _RESET:
            for k in range(i, front + 1):
                put(sums, k, get(sums, k) - score)
            score = np.float32(0)
        b = get(text, i)
        single = np.int64(1) + np.int64(b >= 0xC0) + np.int64(b >= 0xE0) + np.int64(b >= 0xF0)
        single = min(single, n - i)
        has_single = False
        node = np.uint64(0)
        base = root
        j = i
        while j < n:
            t = base + np.int64(get(text, j))
            unit = get(cells, 2 * t)
            if unit & _LOW_32 != node:
                break
            node = np.uint64(t)
            base = np.int64(unit >> _33)
            j += 1
            has_single |= (j - i == single) & (((unit >> _32) & _ONE) != 0)
            candidate = score + np.float32(get(cell_scores, 2 * t + 1))
            old = get(sums, j)
            better = candidate > old
            put(sums, j, candidate if better else old)
            put(node_at, j, np.int32(t) if better else get(node_at, j))
            put(begin_at, j, np.int32(i) if better else get(begin_at, j))
        front = max(front, j)
        if not has_single:
            j = i + single
            candidate = score + unknown
            old = get(sums, j)
            better = candidate > old
            put(sums, j, candidate if better else old)
            put(node_at, j, UNKNOWN if better else get(node_at, j))
            put(begin_at, j, np.int32(i) if better else get(begin_at, j))
            front = max(front, j)
        i += single
    return np.float64(get(sums, n))
