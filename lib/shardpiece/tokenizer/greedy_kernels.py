"""Numba kernels that encode a word by BPE without merging: longest tokens first, each checked against the one before.

A sequence of tokens is what merging gives if and only if each two neighbours are what merging their own text gives
(Berglund and van der Merwe 2023 prove it for lists of merges). So: take the longest token at the beginning, then the
longest that can stand behind it, and so on; where none can, take the last one back and try a shorter one. A place that
nothing led on from is never entered again, so the steps are at most those of all tokens at all places.
"""

import numpy as np

from shardpiece.intrinsics import get, put
from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.tokenizer.double_array_kernels import BASE_MASK, BASE_SHIFT, BYTE_MASK, TOKEN_SHIFT
from shardpiece.tokenizer.pair_kernels import UNREACHABLE, longest_compatible

CHARACTERS = 0x10000 + 0x800
_ZERO = np.uint64(0)


@plain_kernel
def longest_behind(data, position, end, cell, best, best_end, cells):
    """``longest_token`` from where the bytes before ``position`` lead to ``cell``, and the longest token so far is ``best``."""
    while position < end:
        b = np.uint64(get(data, position))
        cell = get(cells, np.int64(((cell >> BASE_SHIFT) & BASE_MASK) + b))
        if (cell & BYTE_MASK) != b:
            break
        token = np.int64(cell >> TOKEN_SHIFT) - 1
        position += 1
        best, best_end = (token, position) if token >= 0 else (best, best_end)
    return best, best_end


@plain_kernel
def longest_token(data, position, end, cells):
    """(the longest token that begins at ``position`` and ends at ``end`` at most, where it ends); (-1, ``position``) if there is
    none. ``data`` is UTF-8 there: the CHARACTERS behind the trie in ``cells`` spare the steps within a character."""
    best, best_end = np.int64(-1), position
    cell = get(cells, np.int64(0))
    first = np.int64(get(data, position))
    if first >= 0xC2 and position + 3 <= end:
        second = np.int64(get(data, position + 1)) & 63
        place = ((first & 15) << 12) | (second << 6) | (np.int64(get(data, position + 2)) & 63)
        place = place if first >= 0xE0 else np.int64(0x10000) | ((first & 31) << 6) | second
        of_character = get(cells, np.int64(len(cells)) - CHARACTERS + place)
        if of_character != _ZERO and first < 0xF0:
            cell = of_character
            position += 3 if first >= 0xE0 else 2
            best, best_end = np.int64(cell >> TOKEN_SHIFT) - 1, position
    return longest_behind(data, position, end, cell, best, best_end, cells)


@kernel
def add_characters(cells, used):
    """Fill cells[used:used + CHARACTERS] of the trie cells[:used] with the cells that characters of two and three bytes of UTF-8
    lead to, zeros for those that are no tokens: 16 bits, or 0x10000 and 11 bits, of the character's number."""
    for place in range(CHARACTERS):
        if place < 0x10000:
            text = (0xE0 | place >> 12, 0x80 | ((place >> 6) & 63), 0x80 | (place & 63))
        else:
            text = (0xC0 | ((place >> 6) & 31), 0x80 | (place & 63), -1)
        cell = cells[0]
        for b in text:
            if b < 0:
                break
            cell = cells[np.int64((cell >> BASE_SHIFT) & BASE_MASK) + b]
            if np.int64(cell & BYTE_MASK) != b:
                cell = _ZERO
                break
        cells[used + place] = cell if cell >> TOKEN_SHIFT != _ZERO else _ZERO


@plain_kernel
def go_on_greedily(
    data, start, end, n, position, token, known, stop, place, cells, shorter, lengths, pairs, merged, parts, sides, symbols,
    starts, seen, tokens, ranks, dead, out, at,
):  # fmt: skip
    """``encode_greedy`` from where the first n tokens are in ``out`` and the one to be tried at ``position`` is ``token``.
    out[known:stop] are the longest tokens at ``place`` and each behind the one before."""
    taken_back = False
    while token >= 0:
        if n > 0:
            token = longest_compatible(
                np.int64(get(out, at + n - 1)), token, shorter, pairs, merged, parts, sides, symbols, starts, seen, tokens, ranks
            )  # fmt: skip
        if token >= 0:
            after = position + np.int64(get(lengths, token))
            if get(dead, after - start) == 0:
                put(out, at + n, np.int32(token))
                n += 1
                position = after
                if position == end:
                    break
                while known < stop and place < position:
                    place += np.int64(get(lengths, np.int64(get(out, known))))
                    known += 1
                if known < stop and place == position:
                    token = np.int64(get(out, known))
                else:
                    token, _ = longest_token(data, position, end, cells)
                continue
            token = np.int64(get(shorter, token))
        if token < 0:
            put(dead, position - start, np.uint8(1))
            taken_back = True
            n -= 1
            token = np.int64(get(out, at + n))
            position -= np.int64(get(lengths, token))
            # The token taken back leads to a dead place: the loop goes on with a shorter one.
    if taken_back:
        for i in range(end - start + 1):
            put(dead, np.int64(i), np.uint8(0))
    return n, position


@plain_kernel
def encode_greedy(
    data, start, end, cells, shorter, lengths, pairs, merged, parts, sides, symbols, starts, seen, tokens, ranks,
    dead, out, at,
):  # fmt: skip
    """Encode data[start:end] into out[at:] (int32) up to the first place where no token begins; returns (number of tokens,
    that place or ``end``).

    ``shorter`` (int32 [ids]): the longest token that begins a token, itself excepted, -1 for none. ``lengths`` (int32
    [ids]): bytes of each. ``dead`` (uint8, zeros for end - start + 1 places): scratch, left zeroed. Others: see
    ``pair_kernels`` and ``double_array_kernels``.
    """
    token, _ = longest_token(data, start, end, cells)
    return go_on_greedily(
        data, start, end, np.int64(0), start, token, np.int64(0), np.int64(0), start, cells,
        shorter, lengths, pairs, merged, parts, sides, symbols, starts, seen, tokens, ranks, dead, out, at,
    )  # fmt: skip


@kernel
def shorter_tokens(data, offsets, rank_of, cells, shorter):
    """shorter[t] (int32) = the longest token that begins token t, itself excepted, -1 for none; tokens are those of rank_of
    (int32) above UNREACHABLE."""
    for t in range(len(rank_of)):
        shorter[t] = -1
        if rank_of[t] != UNREACHABLE:
            root, start = cells[0], np.int64(offsets[t])
            shorter[t], _ = longest_behind(data, start, offsets[t + 1] - 1, root, np.int64(-1), start, cells)
