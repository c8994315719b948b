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
from shardpiece.tokenizer.pair_kernels import UNREACHABLE, compatible


@plain_kernel
def longest_token(data, position, end, cells):
    """The longest token that begins at ``position`` and ends at ``end`` at most, -1 if there is none."""
    cell = get(cells, np.int64(0))
    best = np.int64(-1)
    while position < end:
        b = np.uint64(get(data, position))
        cell = get(cells, np.int64(((cell >> BASE_SHIFT) & BASE_MASK) + b))
        if (cell & BYTE_MASK) != b:
            break
        token = np.int64(cell >> TOKEN_SHIFT) - 1
        if token >= 0:
            best = token
        position += 1
    return best


@plain_kernel
def encode_greedy(
    data, start, end, cells, shorter, lengths, pairs, merged, tree, rank_of, plain, symbols, starts, seen, tokens, ranks,
    dead, out, at,
):  # fmt: skip
    """Encode data[start:end] into out[at:] (int32) up to the first place where no token begins; returns (number of tokens,
    that place or ``end``).

    ``shorter`` (int32 [ids]): the longest token that begins a token, itself excepted, -1 for none. ``lengths`` (int32
    [ids]): bytes of each. ``dead`` (uint8, zeros for end - start + 1 places): scratch, left zeroed. Others: see
    ``pair_kernels`` and ``double_array_kernels``.
    """
    n = np.int64(0)
    position = start
    taken_back = False
    token = longest_token(data, position, end, cells)
    while token >= 0:
        after = position + np.int64(get(lengths, token))
        if get(dead, after - start) == 0 and (
            n == 0
            or compatible(
                np.int64(get(out, at + n - 1)), token, pairs, merged, tree, rank_of, plain, symbols, starts, seen, tokens,
                ranks,
            )
        ):  # fmt: skip
            put(out, at + n, np.int32(token))
            n += 1
            position = after
            if position == end:
                break
            token = longest_token(data, position, end, cells)
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


@kernel
def shorter_tokens(data, offsets, rank_of, cells, shorter):
    """shorter[t] (int32) = the longest token that begins token t, itself excepted, -1 for none; tokens are those of rank_of
    (int32) above UNREACHABLE."""
    for t in range(len(rank_of)):
        shorter[t] = -1
        if rank_of[t] != UNREACHABLE:
            shorter[t] = longest_token(data, offsets[t], offsets[t + 1] - 1, cells)
