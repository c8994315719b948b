"""Numba kernels that normalize and segment one piece of ``raw_unigram_kernels``: those of ``viterbi_kernels`` and
``charsmap_kernels`` for what is short, without branches where a piece of the model ends.

``cells``: the trie over the pieces' bytes, see ``double_array_kernels``; ``cell_scores``: float32 [ids + 1], the score of each id at
the id plus one, -inf at 0, where no piece ends. ``last`` (float64): the last piece of the best path to each place, its id plus
one or 0 for an unknown character, and in the lowest PLACE_BITS where it begins: a number that is chosen by a comparison of
numbers takes no branch.
"""

import numpy as np

from shardpiece.intrinsics import get, put
from shardpiece.kernel_cache import inlined_kernel, plain_kernel
from shardpiece.text.normalization.character_kernels import decode
from shardpiece.text.normalization.charsmap_kernels import longest_rule
from shardpiece.tokenizer.double_array_kernels import BASE_MASK, BASE_SHIFT, BYTE_MASK, TOKEN_SHIFT
from shardpiece.tokenizer.viterbi_kernels import LIMITS, RESET

AT_ONCE = 1000
"""Bytes of a normalized piece that is segmented as a whole."""

_PLACE_BITS = 10
_PLACE = 1 << _PLACE_BITS
_PLACES = float(_PLACE)
_SPACE = 0x20
_NONE = -np.inf
_NONE_32 = np.float32(-np.inf)
_RESET = np.float32(RESET)
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
def best_paths(text, n, cells, cell_scores, unknown_score, best, second, last):
    """``two_best`` of ``viterbi_kernels`` for text[:n] without branches where a piece ends."""
    put(best, 0, 0.0)
    put(second, 0, _NONE)
    for j in range(1, n + 1):
        put(best, j, _NONE)
        put(second, j, _NONE)
    i = np.int64(0)
    widest = 0.0
    characters = np.int64(0)
    root = np.int64((get(cells, 0) >> BASE_SHIFT) & BASE_MASK)
    while i < n:
        score = get(best, i)
        below = get(second, i)
        widest = max(widest, abs(score))
        characters += 1
        b = get(text, i)
        single = np.int64(1) + np.int64(b >= 0xC0) + np.int64(b >= 0xE0) + np.int64(b >= 0xF0)
        single = min(single, n - i)
        has_single = False
        begin = np.float64(i)
        base = root
        j = i
        while j < n:
            byte = np.int64(get(text, j))
            cell = get(cells, base + byte)
            if cell & BYTE_MASK != np.uint64(byte):
                break
            piece = np.int64(cell >> TOKEN_SHIFT)
            weight = np.float64(get(cell_scores, piece))
            base = np.int64((cell >> BASE_SHIFT) & BASE_MASK)
            j += 1
            has_single |= (j - i == single) & (piece != 0)
            candidate = score + weight
            old = get(best, j)
            better = candidate > old
            before = get(last, j)
            worse = old if better else candidate
            next_best = below + weight
            worse = next_best if next_best > worse else worse
            next_best = get(second, j)
            put(second, j, next_best if next_best > worse else worse)
            put(best, j, candidate if better else old)
            put(last, j, np.float64(piece) * _PLACES + begin if better else before)
        if not has_single:
            j = i + single
            candidate = score + unknown_score
            old = get(best, j)
            better = candidate > old
            put(second, j, max(max(get(second, j), below + unknown_score), min(old, candidate)))
            put(best, j, candidate if better else old)
            put(last, j, begin if better else get(last, j))
        i += single
    return max(widest, abs(get(best, n))), characters


@inlined_kernel
def collect_path(n, last, path):
    """The pieces of the best path to place ``n`` into ``path`` (int32), the last one first; returns how many there are."""
    m = np.int64(0)
    j = n
    while j > 0:
        packed = np.int64(get(last, j))
        put(path, m, np.int32((packed >> _PLACE_BITS) - 1))
        m += 1
        j = packed & (_PLACE - 1)
    return m


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
def follow_narrow(text, n, total, cells, cell_scores, unknown_score, sums, last):
    """The narrow ``follow`` of ``viterbi_kernels`` for text[:n] with ``sums`` (float32) for ``best``."""
    put(sums, 0, np.float32(total))
    for j in range(1, n + 1):
        put(sums, j, _NONE_32)
    unknown = np.float32(unknown_score)
    root = np.int64((get(cells, 0) >> BASE_SHIFT) & BASE_MASK)
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
        begin = np.float64(i)
        base = root
        j = i
        while j < n:
            byte = np.int64(get(text, j))
            cell = get(cells, base + byte)
            if cell & BYTE_MASK != np.uint64(byte):
                break
            piece = np.int64(cell >> TOKEN_SHIFT)
            base = np.int64((cell >> BASE_SHIFT) & BASE_MASK)
            j += 1
            has_single |= (j - i == single) & (piece != 0)
            candidate = score + get(cell_scores, piece)
            old = get(sums, j)
            better = candidate > old
            put(sums, j, candidate if better else old)
            before = get(last, j)
            put(last, j, np.float64(piece) * _PLACES + begin if better else before)
        front = max(front, j)
        if not has_single:
            j = i + single
            candidate = score + unknown
            old = get(sums, j)
            better = candidate > old
            put(sums, j, candidate if better else old)
            put(last, j, begin if better else get(last, j))
            front = max(front, j)
        i += single
    return np.float64(get(sums, n))
