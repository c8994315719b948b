"""Numba kernels that read the words of a table as characters (``alphabet`` drives them).

Characters are UTF-8 code points. What a character is spelled as depends on where it stands, which a ``place`` says:
bit 1 for every character but a word's first, bit 0 for a word's last.
"""

import numpy as np

from shardpiece.kernel_cache import kernel, plain_kernel

CODE_POINTS = 0x110000
PLACES = 4


@plain_kernel
def character_at(data, i, end):
    """The code point that begins at data[i] (uint8) and its length in bytes, as code point << 3 | length; -1 when
    data[i:end] does not begin with a valid UTF-8 character."""
    a = np.int64(data[i])
    if a < 0x80:
        return a << 3 | 1
    if a < 0xC2 or a > 0xF4:
        return np.int64(-1)
    n = 2 if a < 0xE0 else 3 if a < 0xF0 else 4
    if i + n > end:
        return np.int64(-1)
    c = a & (0x7F >> n)
    for j in range(1, n):
        b = np.int64(data[i + j])
        if b & 0xC0 != 0x80:
            return np.int64(-1)
        c = c << 6 | (b & 0x3F)
    # Overlong forms, surrogates, and what lies beyond Unicode.
    if (n == 3 and c < 0x800) or (n == 4 and (c < 0x10000 or c >= CODE_POINTS)) or 0xD800 <= c < 0xE000:
        return np.int64(-1)
    return c << 3 | n


@kernel
def count_characters(data, starts, counts, occurrences, places):
    """Add each character's occurrences, weighted by the word counts, to ``occurrences`` (int64 [CODE_POINTS]), and set
    bit p of ``places`` (uint8 [CODE_POINTS]) where it stands at place p. ``data`` uint8, ``starts`` int64 [w + 1],
    ``counts`` int64 [w]. Returns (characters of the table, -1), or (0, w) when word w is no valid UTF-8."""
    total = np.int64(0)
    for w in range(len(counts)):
        i = starts[w]
        end = starts[w + 1]
        place = 0
        while i < end:
            c = character_at(data, i, end)
            if c < 0:
                return np.int64(0), np.int64(w)
            i += c & 7
            c >>= 3
            if i == end:
                place |= 1
            occurrences[c] += counts[w]
            places[c] |= np.uint8(1 << place)
            total += 1
            place = 2
    return total, np.int64(-1)


@kernel
def write_symbols(data, starts, counts, ids, closing, symbols, symbol_starts, occurrences):
    """Write the base symbols of valid words to ``symbols`` (int32), their borders to ``symbol_starts`` (int64 [w + 1]).

    ``ids``: int32 [PLACES, CODE_POINTS], the symbol of each character at each place, -1 for none; ``closing``: a symbol
    put after every word, -1 for none. ``occurrences`` (int64 [symbols]) receives how often each symbol is written,
    weighted by the word counts. Returns the number of symbols.
    """
    at = np.int64(0)
    symbol_starts[0] = 0
    for w in range(len(counts)):
        i = starts[w]
        end = starts[w + 1]
        place = 0
        while i < end:
            c = character_at(data, i, end)
            i += c & 7
            if i == end:
                place |= 1
            s = ids[place, c >> 3]
            symbols[at] = s
            at += 1
            if s >= 0:
                occurrences[s] += counts[w]
            place = 2
        if closing >= 0:
            symbols[at] = closing
            at += 1
            occurrences[closing] += counts[w]
        symbol_starts[w + 1] = at
    return at
