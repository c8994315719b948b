"""Numba kernels that split text 64 bytes at a time: classes of bytes as bit masks, borders by shifts.

A window begins at the beginning of a word and gives the borders in it that no text behind it can change; the next
window begins at the last of them. Each kernel is written for one family of published patterns (``windows`` finds out
which of them a pattern belongs to). It knows ASCII and the commonest characters beyond: Latin and Cyrillic letters,
dashes and quotation marks. From any other character on nothing is known, and the machine of ``split_kernels`` goes on.

In the masks, bit k is byte k of the window. a: letters, n: digits, w: white space, of it r: "\\r" and "\\n", b: other
("blanks"), s: spaces; p: everything else. ``x << 1`` has the bits whose byte before is an x, ``x >> 1`` those whose
next byte is. All bytes of a character of several are in the mask of its class.
"""

import numpy as np

from shardpiece.intrinsics import bit_count, leading_zeros, mask_of_range, put, trailing_zeros
from shardpiece.kernel_cache import plain_kernel

NO_WINDOWS = 0
GPT2 = 1
CL100K = 2
"""Also llama3: they differ at the end of a text, which no window decides."""
QWEN2 = 3
O200K = 4
TEKKEN = 5

WINDOW_ROOM = 160
"""``ends`` must have room for this many words more: a window writes 64 at most."""

# A window that gets no further than this is followed by something that windows are not good at.
_LEAST_ADVANCE = 24

_ANY = np.uint8(0)
_FOLD = np.uint8(0x20)
_ONE = np.uint8(1)
_TWO = np.uint8(2)
_FIVE = np.uint8(5)
_TEN = np.uint8(10)
_HALF = np.uint8(128)
_LETTERS = np.uint8(26)
_A = np.uint8(ord("a"))
_UPPER_A = np.uint8(ord("A"))
_ZERO = np.uint8(ord("0"))
_TAB = np.uint8(ord("\t"))
_LINE_FEED = np.uint8(ord("\n"))
_RETURN = np.uint8(ord("\r"))
_SPACE = np.uint8(ord(" "))
_APOSTROPHE = np.uint8(ord("'"))
_SLASH = np.uint8(ord("/"))
_CONTINUATIONS = np.uint8(0x40)
# Bytes of the characters that ``further_letters`` and the others name, and how many of them there are.
_C3, _C4, _C5, _D0, _D1 = np.uint8(0xC3), np.uint8(0xC4), np.uint8(0xC5), np.uint8(0xD0), np.uint8(0xD1)
_TIMES, _DIVIDED, _LONG_S = np.uint8(0x97), np.uint8(0xB7), np.uint8(0xBF)
_SHARP_S, _LATIN_CAPITALS, _LATIN_SMALL = np.uint8(0x9F), np.uint8(0x1F), np.uint8(0x21)
_CYRILLIC_A, _CYRILLIC_CAPITALS, _CYRILLIC_SMALL = np.uint8(0xB0), np.uint8(0x30), np.uint8(0x10)
_MORE_CYRILLIC_SMALL = np.uint8(0x20)
_CC, _CD, _MARKS_OF_CD = np.uint8(0xCC), np.uint8(0xCD), np.uint8(0x30)
_FIRST_OF_DASH, _THIRD_OF_DASH, _DASHES = np.uint8(0xE2), np.uint8(0x90), np.uint8(0x18)
_S, _D, _M, _T = np.uint8(ord("s")), np.uint8(ord("d")), np.uint8(ord("m")), np.uint8(ord("t"))
_L, _R, _V, _E = np.uint8(ord("l")), np.uint8(ord("r")), np.uint8(ord("v")), np.uint8(ord("e"))

_0 = np.uint64(0)
_1 = np.uint64(1)
_2 = np.uint64(2)
_3 = np.uint64(3)


@plain_kernel
def continuations(data, start, known):
    """Second, third and fourth bytes of characters among the first ``known`` bytes."""
    return mask_of_range(data, start, _ANY, _HALF, _CONTINUATIONS) & (~_0 >> np.uint64(64 - known))


@plain_kernel
def dashes_and_quotes(data, start, rest):
    """First bytes of U+2010 to U+2027, given the ``continuations``."""
    second = mask_of_range(data, start, _ANY, _HALF, _ONE) & rest
    third = mask_of_range(data, start, _ANY, _THIRD_OF_DASH, _DASHES) & rest
    return mask_of_range(data, start, _ANY, _FIRST_OF_DASH, _ONE) & (second >> _1) & (third >> _2)


@plain_kernel
def combining_marks(data, start, rest):
    """U+0300 to U+036F."""
    last = mask_of_range(data, start, _ANY, _HALF, _MARKS_OF_CD)
    first = mask_of_range(data, start, _ANY, _CD, _ONE) & ((last & rest) >> _1)
    first |= mask_of_range(data, start, _ANY, _CC, _ONE) & (rest >> _1)
    return first | (first << _1)


@plain_kernel
def further_letters(data, start, rest):
    """U+00C0 to U+017E but the signs × and ÷, U+0400 to U+047F."""
    c3 = mask_of_range(data, start, _ANY, _C3, _ONE)
    c5 = mask_of_range(data, start, _ANY, _C5, _ONE)
    first = c3 | c5 | mask_of_range(data, start, _ANY, _C4, _ONE) | mask_of_range(data, start, _ANY, _D0, _TWO)
    signs = mask_of_range(data, start, _ANY, _TIMES, _ONE) | mask_of_range(data, start, _ANY, _DIVIDED, _ONE)
    long_s = mask_of_range(data, start, _ANY, _LONG_S, _ONE)
    first &= (rest >> _1) & ~(c3 & (signs >> _1)) & ~(c5 & (long_s >> _1))
    return first | (first << _1)


@plain_kernel
def further_capitals(data, start, rest):
    """U+00C0 to U+00DE but the sign ×, U+0400 to U+042F."""
    latin = mask_of_range(data, start, _ANY, _HALF, _LATIN_CAPITALS) & ~mask_of_range(data, start, _ANY, _TIMES, _ONE)
    cyrillic = mask_of_range(data, start, _ANY, _HALF, _CYRILLIC_CAPITALS)
    first = mask_of_range(data, start, _ANY, _C3, _ONE) & ((latin & rest) >> _1)
    first |= mask_of_range(data, start, _ANY, _D0, _ONE) & ((cyrillic & rest) >> _1)
    return first | (first << _1)


@plain_kernel
def further_small_letters(data, start, rest):
    """U+00DF to U+00FF but the sign ÷, U+0430 to U+045F."""
    latin = mask_of_range(data, start, _ANY, _SHARP_S, _LATIN_SMALL) & ~mask_of_range(data, start, _ANY, _DIVIDED, _ONE)
    cyrillic = mask_of_range(data, start, _ANY, _CYRILLIC_A, _CYRILLIC_SMALL)
    more = mask_of_range(data, start, _ANY, _HALF, _MORE_CYRILLIC_SMALL)
    first = mask_of_range(data, start, _ANY, _C3, _ONE) & ((latin & rest) >> _1)
    first |= mask_of_range(data, start, _ANY, _D0, _ONE) & ((cyrillic & rest) >> _1)
    first |= mask_of_range(data, start, _ANY, _D1, _ONE) & ((more & rest) >> _1)
    return first | (first << _1)


@plain_kernel
def short_contractions(data, start, fold, apostrophes):
    """Those of ``apostrophes`` that s, d, m or t follows."""
    x = mask_of_range(data, start, fold, _S, _TWO)  # s and t
    x |= mask_of_range(data, start, fold, _D, _ONE) | mask_of_range(data, start, fold, _M, _ONE)
    return apostrophes & (x >> _1)


@plain_kernel
def long_contractions(data, start, fold, apostrophes):
    """Those of ``apostrophes`` that ll, ve or re follows."""
    x = mask_of_range(data, start, fold, _L, _ONE)
    rv = mask_of_range(data, start, fold, _R, _ONE) | mask_of_range(data, start, fold, _V, _ONE)
    e = mask_of_range(data, start, fold, _E, _ONE)
    return apostrophes & (((x >> _1) & (x >> _2)) | ((rv >> _1) & (e >> _2)))


@plain_kernel
def proven(borders, w, known, ahead):
    """``borders`` up to the last that is certain: the bytes from ``known`` on are not known. A border may depend on
    ``ahead`` bytes from its own on, or, within and behind white space, on the byte behind all of that."""
    top = known - 1
    last = known - ahead
    if (w >> np.uint64(top)) & _1:
        words = ~w & ((_1 << np.uint64(top)) - _1)
        if words == _0:
            return _0
        last = 64 - leading_zeros(words)  # where the white space begins
    return borders & ((_2 << np.uint64(last)) - _1) & ~_1


@plain_kernel
def white_space_borders(b, r, w, p):
    """Borders in and behind white space for patterns with ``\\s*[\\r\\n]+`` and ``[\\r\\n]*`` behind p: before white
    space, unless a line break follows a p; behind the last line break of each run; before its last blank."""
    r1 = r << _1
    p1 = p << _1
    borders = (w & ~(w << _1) & ~(r & p1)) | (~w & r1) | (b & ~(w >> _1))
    # Blanks behind a line break: no border if another line break follows them, unless the first belongs to a p.
    blanks = b & r1
    borders |= blanks
    again = ((b + blanks) & ~b) & r
    while again != _0:
        behind = again & (~again + _1)
        first = _1 << np.uint64(63 - leading_zeros(blanks & (behind - _1)))
        line_breaks = ~r & (first - _1)
        if line_breaks == _0 or not (p >> np.uint64(63 - leading_zeros(line_breaks))) & _1:
            borders &= ~first
        again ^= behind
    return borders


@plain_kernel
def digit_borders(n, digits):
    """Runs of n in groups of ``digits``: 1, or up to 3 from the left."""
    if digits == 1:
        return n
    first = n & ~(n << _1)
    borders = first
    fourth = n & (n << _1) & (n << _2) & (n << _3)
    first = (first << _3) & fourth
    while first != _0:
        borders |= first
        first = (first << _3) & fourth
    return borders


@plain_kernel
def cl100k_window(data, start, end, digits):
    """Borders in the window at ``start``; digits in groups of ``digits``."""
    known = min(np.int64(64), end - start)
    a = mask_of_range(data, start, _FOLD, _A, _LETTERS)
    high = mask_of_range(data, start, _ANY, _HALF, _HALF)
    dashes = _0
    if high != _0:
        rest = continuations(data, start, known)
        more = further_letters(data, start, rest)
        dashes = dashes_and_quotes(data, start, rest)
        a |= more
        known = min(known, trailing_zeros(high & ~(more | dashes | (dashes << _1) | (dashes << _2))))
    if known < 2:
        return _0
    n = mask_of_range(data, start, _ANY, _ZERO, _TEN)
    s = mask_of_range(data, start, _ANY, _SPACE, _ONE)
    r = mask_of_range(data, start, _ANY, _LINE_FEED, _ONE) | mask_of_range(data, start, _ANY, _RETURN, _ONE)
    w = mask_of_range(data, start, _ANY, _TAB, _FIVE) | s
    p = ~(a | n | w)
    p_first = p & ~((p | s) << _1)
    borders = white_space_borders(w & ~r, r, w, p) | p_first | digit_borders(n, digits)
    dashes &= p_first
    p_first |= (dashes << _1) | (dashes << _2)
    # Letters take one p or blank before them along, the p only where it begins a word.
    borders |= a & ~(a << _1) & ((n | r | (p & ~p_first)) << _1)
    apostrophes = mask_of_range(data, start, _ANY, _APOSTROPHE, _ONE) & p_first & (a >> _1)
    if apostrophes != _0:
        borders |= short_contractions(data, start, _FOLD, apostrophes) << _2
        borders |= long_contractions(data, start, _FOLD, apostrophes) << _3
    return proven(borders, w, known, 1)


@plain_kernel
def o200k_window(data, start, end, digits, contractions):
    """Borders in the window at ``start``; digits in groups of ``digits``; with or without ``contractions``."""
    known = min(np.int64(64), end - start)
    a = mask_of_range(data, start, _FOLD, _A, _LETTERS)
    upper = mask_of_range(data, start, _ANY, _UPPER_A, _LETTERS)
    high = mask_of_range(data, start, _ANY, _HALF, _HALF)
    dashes = _0
    if high != _0:
        rest = continuations(data, start, known)
        capitals = further_capitals(data, start, rest)
        more = further_small_letters(data, start, rest) | capitals
        dashes = dashes_and_quotes(data, start, rest)
        a |= more
        upper |= capitals
        known = min(known, trailing_zeros(high & ~(more | dashes | (dashes << _1) | (dashes << _2))))
    if known < 4:
        return _0
    n = mask_of_range(data, start, _ANY, _ZERO, _TEN)
    s = mask_of_range(data, start, _ANY, _SPACE, _ONE)
    r = mask_of_range(data, start, _ANY, _LINE_FEED, _ONE) | mask_of_range(data, start, _ANY, _RETURN, _ONE)
    w = mask_of_range(data, start, _ANY, _TAB, _FIVE) | s
    p = ~(a | n | w)
    borders = white_space_borders(w & ~r, r, w, p) | digit_borders(n, digits)
    # A line break behind a p belongs to its word, with all line breaks and slashes that follow.
    tail = r & (p << _1)
    if tail != _0:
        slashes = r | mask_of_range(data, start, _ANY, _SLASH, _ONE)
        tail |= slashes & ~(slashes + tail)
        borders = (borders & ~tail) | ((tail << _1) & ~slashes)
    fresh = p & ~tail
    p_first = fresh & ~((fresh | s) << _1)
    # A word of letters goes up to a capital behind a small letter.
    borders |= p_first | (upper & ((a & ~upper) << _1))
    dashes &= p_first
    p_first |= (dashes << _1) | (dashes << _2)
    borders |= a & ~(a << _1) & ((n | r | (p & ~p_first)) << _1)
    if not contractions:
        return proven(borders, w, known, 1)
    # A contraction belongs to the letters before it, and letters behind it do not.
    apostrophes = mask_of_range(data, start, _ANY, _APOSTROPHE, _ONE) & (a << _1) & (a >> _1)
    if apostrophes != _0:
        short = short_contractions(data, start, _FOLD, apostrophes)
        long = long_contractions(data, start, _FOLD, apostrophes)
        behind = (short << _2) | (long << _3)
        borders = (borders & ~(short | long | (long << _2))) | behind
        # One right behind another is none: its word ends where the first one does.
        known = min(known, trailing_zeros((short | long) & behind) + 1)
        if known < 4:
            return _0
    return proven(borders, w, known, 3)


@plain_kernel
def gpt2_window(data, start, end):
    """Borders in the window at ``start``."""
    known = min(np.int64(64), end - start)
    a = mask_of_range(data, start, _FOLD, _A, _LETTERS)
    high = mask_of_range(data, start, _ANY, _HALF, _HALF)
    if high != _0:
        rest = continuations(data, start, known)
        more = further_letters(data, start, rest)
        dashes = dashes_and_quotes(data, start, rest)
        a |= more
        more |= combining_marks(data, start, rest)
        known = min(known, trailing_zeros(high & ~(more | dashes | (dashes << _1) | (dashes << _2))))
    if known < 2:
        return _0
    n = mask_of_range(data, start, _ANY, _ZERO, _TEN)
    s = mask_of_range(data, start, _ANY, _SPACE, _ONE)
    w = mask_of_range(data, start, _ANY, _TAB, _FIVE) | s
    p = ~(a | n | w)
    p_first = p & ~((p | s) << _1)
    borders = (a & ~((a | s) << _1)) | (n & ~((n | s) << _1)) | p_first
    borders |= w & (~(w << _1) | ~(w >> _1))
    apostrophes = mask_of_range(data, start, _ANY, _APOSTROPHE, _ONE) & p_first & (a >> _1)
    if apostrophes != _0:
        short = short_contractions(data, start, _ANY, apostrophes)
        long = long_contractions(data, start, _ANY, apostrophes)
        borders &= ~((short | long) << _1)
        borders |= (short << _2) | (long << _3)
    return proven(borders, w, known, 2)


@plain_kernel
def letters_ahead(data, start, end):
    """Bytes from ``start`` on that are known letters, 64 at most."""
    a = mask_of_range(data, start, _FOLD, _A, _LETTERS)
    if mask_of_range(data, start, _ANY, _HALF, _HALF) != _0:
        a |= further_letters(data, start, continuations(data, start, min(np.int64(64), end - start)))
    return min(trailing_zeros(~a), end - start)


@plain_kernel
def split_windows(data, start, end, kind, ends, words):
    """Write the ends of words from ``start`` on as long as windows get ahead: (where they stopped, words). That is the
    beginning of a word, or a letter inside of one that goes on as if it began there.

    The caller guarantees that ``start`` is such a place too and words + WINDOW_ROOM <= len(ends).
    """
    last = len(data) - 64
    while start <= last and words + WINDOW_ROOM <= len(ends):
        if kind == GPT2:
            borders = gpt2_window(data, start, end)
        elif kind == O200K:
            borders = o200k_window(data, start, end, 3, True)
        elif kind == TEKKEN:
            borders = o200k_window(data, start, end, 1, False)
        else:
            borders = cl100k_window(data, start, end, 1 if kind == QWEN2 else 3)
        if borders == _0:
            # A long run of letters is skipped, but for its last one. Where case matters a run is not always one word.
            ahead = letters_ahead(data, start, end)
            if kind in (O200K, TEKKEN) or ahead < _LEAST_ADVANCE:
                break
            start += ahead - 1
            if data[start] >= _HALF:
                start -= 1
            continue
        advance = 63 - leading_zeros(borders)
        count = bit_count(borders)
        at = words
        while True:
            for i in range(8):
                put(ends, at + i, start + trailing_zeros(borders))
                borders &= borders - _1
            at += 8
            if at >= words + count:
                break
        words += count
        start += advance
        if advance < _LEAST_ADVANCE:
            break
    return start, words
