"""Numba kernel that normalizes, splits and drops what stands between words in one pass, for pre-tokenizers whose words
follow from classes of characters alone and normalizers that look at one character at a time; see ``classed``.

Tables: ``values`` (int32, two stages as in ``normalization.tables``) gives for each code point what it does, plus 256 times
what it becomes: 0 for itself, else 1 + the number of a target, targets[target_offsets[t]:target_offsets[t + 1]] (uint8;
int64). ``ascii_actions`` and ``ascii_bytes`` (uint8 [128]) are the same for ASCII, where each becomes one byte at most.

What a character does: GAP ends a word and is dropped; NOTHING is dropped; SINGLE is a word by itself; from RUN on, it
belongs to the word before if that is of the same number, else it begins one; HARD is for another way of normalizing.

ASCII goes by windows of 64 bytes, with all borders found at once, where the classes are those of a kind of window: letters
and digits are one run and space, tab and line breaks gaps; other printable characters are words by themselves
(WINDOW_SINGLE), runs of their own, of which _ is not (WINDOW_RUNS), or like letters (WINDOW_JOINED).
"""

import numpy as np

from shardpiece.intrinsics import bit_count, copy_folded_16, get, load64, mask_of_range, put, store64, trailing_zeros
from shardpiece.kernel_cache import plain_kernel

GAP = 0
NOTHING = 1
SINGLE = 2
HARD = 3
RUN = 4

NO_WINDOW = 0
WINDOW_SINGLE = 1
WINDOW_RUNS = 2
WINDOW_JOINED = 3

DONE = 0
FULL = 1
NOT_HERE = 2

ROOM = 80
"""``ends`` and ``out`` need this much room beyond what they are sure to take."""

# Windows with less than this many bytes that they know are left to the loop over characters.
_LEAST = 8

_HIGH_BITS = np.uint64(0x8080808080808080)
_0 = np.uint64(0)
_1 = np.uint64(1)
_ANY = np.uint8(0)
_CASE = np.uint8(0x20)
_A = np.uint8(ord("a"))
_ZERO = np.uint8(ord("0"))
_SPACE = np.uint8(ord(" "))
_TAB = np.uint8(ord("\t"))
_RETURN = np.uint8(ord("\r"))
_UNDERSCORE = np.uint8(ord("_"))
_PRINTABLE = np.uint8(0x21)
_ONE, _TWO, _TEN, _LETTERS, _PRINTABLES = np.uint8(1), np.uint8(2), np.uint8(10), np.uint8(26), np.uint8(0x5E)


@plain_kernel
def ascii_window(data, i, end, window, letters, group, other, out, j, ends, n, open_group):
    """The words of the ASCII bytes from ``i`` on, up to 64: (where it stopped, j, n, open_group). The caller guarantees
    i + 64 + 16 <= len(data). ``letters``: how many of A to Z are made small; ``group`` and ``other``: the runs of letters
    and of other printable characters."""
    a = mask_of_range(data, i, _CASE, _A, _LETTERS) | mask_of_range(data, i, _ANY, _ZERO, _TEN)
    s = mask_of_range(data, i, _ANY, _SPACE, _ONE) | mask_of_range(data, i, _ANY, _TAB, _TWO)
    s |= mask_of_range(data, i, _ANY, _RETURN, _ONE)
    p = mask_of_range(data, i, _ANY, _PRINTABLE, _PRINTABLES) & ~a
    known = min(np.int64(64), end - i, trailing_zeros(~(a | s | p)))
    if known < _LEAST:
        return i, j, n, open_group
    inside = ~_0 >> np.uint64(64 - known)
    if window == WINDOW_RUNS:
        a |= mask_of_range(data, i, _ANY, _UNDERSCORE, _ONE)
        p &= ~a
    elif window == WINDOW_JOINED:
        a |= p
        p = _0
    a &= inside
    p &= inside
    starts = a & ~(a << _1)
    lasts = a & ~(a >> _1)
    if window == WINDOW_SINGLE:
        starts |= p
        lasts |= p
    else:
        starts |= p & ~(p << _1)
        lasts |= p & ~(p >> _1)
    if open_group != 0:
        goes_on = (open_group == group and a & _1 != _0) or (
            window != WINDOW_SINGLE and open_group == other and p & _1 != _0
        )
        if not goes_on:
            put(ends, n, j)
            n += 1
    for _ in range(bit_count(starts)):
        first = i + trailing_zeros(starts)
        length = i + trailing_zeros(lasts) + 1 - first
        copy_folded_16(data, first, out, j, letters)
        for k in range(16, length, 16):
            copy_folded_16(data, first + k, out, j + k, letters)
        j += length
        put(ends, n, j)
        n += 1
        starts &= starts - _1
        lasts &= lasts - _1
    # A word that reaches the end of what is known may go on there.
    top = _1 << np.uint64(known - 1)
    open_group = 0
    if a & top != _0:
        n -= 1
        open_group = group
    elif window != WINDOW_SINGLE and p & top != _0:
        n -= 1
        open_group = other
    return i + known, j, n, open_group


@plain_kernel
def character(data, i, end, b):
    """(code point, width in bytes) of the character at ``i`` with the first byte b >= 0x80; what is no character or is cut
    off by ``end`` is U+FFFD."""
    if b < 0xE0:
        if i + 2 <= end:
            return ((b & 0x1F) << 6) | (np.int64(get(data, i + 1)) & 0x3F), np.int64(2)
    elif b < 0xF0:
        if i + 3 <= end:
            c = ((b & 0x0F) << 12) | ((np.int64(get(data, i + 1)) & 0x3F) << 6) | (np.int64(get(data, i + 2)) & 0x3F)
            return c, np.int64(3)
    elif i + 4 <= end:
        c = (
            ((b & 0x07) << 18)
            | ((np.int64(get(data, i + 1)) & 0x3F) << 12)
            | ((np.int64(get(data, i + 2)) & 0x3F) << 6)
            | (np.int64(get(data, i + 3)) & 0x3F)
        )
        return c if c < 0x110000 else np.int64(0xFFFD), np.int64(4)
    return np.int64(0xFFFD), np.int64(1)


@plain_kernel
def mark_kept(data, offsets, pages, values, ascii_actions, kept):
    """Set kept[d] (bool) where a document, none of them empty, does not begin with a GAP."""
    for d in range(len(offsets) - 1):
        i = np.int64(offsets[d])
        b = np.int64(get(data, i))
        if b < 0x80:
            kept[d] = ascii_actions[b] != GAP
        else:
            c, _ = character(data, i, np.int64(offsets[d + 1]), b)
            kept[d] = values[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)] & 0xFF != GAP


@plain_kernel
def split_classed(
    data, offsets, pages, values, target_offsets, targets, ascii_actions, ascii_bytes, window, letters, out, ends,
    document_ends, state,
):  # fmt: skip
    """Write the bytes of all words to ``out`` (uint8, the caller knows that they fit), the end of every word to ``ends`` and
    the number of words up to each document to ``document_ends`` (int64); the number of bytes and words to ``state`` (int64
    [2]). Returns DONE, FULL when ``ends`` is too short, NOT_HERE when a character is HARD."""
    group = np.int64(ascii_actions[ord("a")])
    other = np.int64(ascii_actions[ord("!")])
    safe = len(data) - 64 - 16
    j = np.int64(0)
    n = np.int64(0)
    i = np.int64(offsets[0])
    for d in range(len(offsets) - 1):
        end = np.int64(offsets[d + 1])
        open_group = np.int64(0)
        while i < end:
            if n + ROOM > len(ends):
                return FULL
            b = np.int64(get(data, i))
            if b < 0x80:
                if window != NO_WINDOW and i <= safe and load64(data, i) & _HIGH_BITS == _0:
                    before = i
                    i, j, n, open_group = ascii_window(
                        data, i, end, window, letters, group, other, out, j, ends, n, open_group
                    )
                    if i > before:
                        continue
                action = np.int64(get(ascii_actions, b))
                target = np.int64(0)
                width = np.int64(1)
            else:
                c, width = character(data, i, end, b)
                value = np.int64(get(values, (np.int64(get(pages, c >> 8)) << 8) | (c & 0xFF)))
                action = value & 0xFF
                target = value >> 8
            if action < SINGLE:
                if action == GAP and open_group != 0:
                    put(ends, n, j)
                    n += 1
                    open_group = np.int64(0)
                i += width
                continue
            if action == HARD:
                return NOT_HERE
            if action != open_group and open_group != 0:
                put(ends, n, j)
                n += 1
            if b < 0x80:
                out[j] = ascii_bytes[b]
                j += 1
            elif target == 0:
                if i <= safe:
                    store64(out, j, load64(data, i))
                else:
                    for k in range(width):
                        out[j + k] = data[i + k]
                j += width
            else:
                for k in range(target_offsets[target - 1], target_offsets[target]):
                    out[j] = targets[k]
                    j += 1
            if action == SINGLE:
                put(ends, n, j)
                n += 1
                open_group = np.int64(0)
            else:
                open_group = action
            i += width
        if open_group != 0:
            put(ends, n, j)
            n += 1
        put(document_ends, d, n)
    state[0] = j
    state[1] = n
    return DONE
