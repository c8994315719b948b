"""Numba kernels for precompiled charsmaps: the double-array trie of SentencePiece (Darts-clone) and what walks it.

A unit is a uint32: the label in the low byte, bit 8 whether a value follows, the rest the distance (XOR) to the block of
the children; a value is a unit with the highest bit set. Every step is checked against the length of the array and
consumes a byte, so no array, damaged or hostile, makes these loops run out of bounds or for ever. A rule counts only
where it ends between two characters.

``targets``: what rules put in, each ended by a zero byte; the caller has checked every value that the trie holds.
"""

import numpy as np

from shardpiece.intrinsics import copy64, mask_of_range, trailing_zeros
from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.text.normalization.character_kernels import SLACK, ascii_end, decode, with_room

LABEL_MASK = 0x800000FF
VALUE_MASK = 0x7FFFFFFF
NO_UNIT = 0x80000000

# ASCII bytes done at a time: spaces may become three bytes, and there must be room for that.
RUN = 4096

# Classes for cutting graphemes: the low four bits; then flags.
OTHER, CONTROL, EXTEND, SPACING, PREPEND, PICTOGRAPHIC, JAMO_L, JAMO_V, JAMO_T, SYLLABLE_LV, SYLLABLE_LVT = range(11)
KIND = 0x0F
CONSONANT = 0x10
LINKER = 0x20
STOPS_CONJUNCT = 0x40
JOINS = 0x80
"""May belong to the grapheme before."""

# A grapheme shorter than this many bytes is looked up whole.
SHORT = 6

_SPACE = 0x20


@plain_kernel
def children(unit):
    return np.int64((unit >> 10) << ((unit & 0x200) >> 6))


@plain_kernel
def longest_rule(units, data, i, end):
    """(length in bytes, value) of the longest source that data[i:end] begins with; the length is 0 for none."""
    n = len(units)
    length = np.int64(0)
    value = np.int64(0)
    if n == 0:
        return length, value
    node = children(np.int64(units[0]))
    for k in range(i, end):
        b = np.int64(data[k])
        node ^= b
        if b == 0 or node >= n:
            break
        unit = np.int64(units[node])
        if unit & LABEL_MASK != b:
            break
        node ^= children(unit)
        if unit & 0x100 and node < n and (k + 1 == end or (data[k + 1] & 0xC0) != 0x80):
            length = k + 1 - i
            value = np.int64(units[node]) & VALUE_MASK
    return length, value


@plain_kernel
def shortest_rule(units, data, i, end):
    """The value of the shortest source that data[i:end] begins with, or -1."""
    n = len(units)
    if n == 0:
        return np.int64(-1)
    node = children(np.int64(units[0]))
    for k in range(i, end):
        b = np.int64(data[k])
        node ^= b
        if b == 0 or node >= n:
            break
        unit = np.int64(units[node])
        if unit & LABEL_MASK != b:
            break
        node ^= children(unit)
        if unit & 0x100 and node < n and (k + 1 == end or (data[k + 1] & 0xC0) != 0x80):
            return np.int64(units[node]) & VALUE_MASK
    return np.int64(-1)


@plain_kernel
def symbol_length(symbols, data, i, end):
    length, _ = longest_rule(symbols, data, i, end)
    return length


@kernel
def sentencepiece_documents(
    data, offsets, units, targets, symbols, plain, pages, begins, prefix, suffix, squeeze, escape
):
    """SentencePiece's Normalizer::Normalize.

    Printable ASCII that ``plain`` leaves as it is goes 64 bytes at a time.

    ``symbols``: a trie of texts that are left alone (user-defined symbols); ``plain`` (uint8 [256]): the ASCII byte that
    an ASCII byte becomes before another one or the end, where that is known, else 0xFF; ``begins``: two-stage, whether a rule or a
    symbol may begin with a character. ``prefix``, ``suffix``: a space is put before or after; ``squeeze``: spaces at
    the ends go and runs become one; ``escape``: spaces are written as U+2581.
    """
    n = len(offsets) - 1
    new_offsets = np.zeros(n + 1, np.int64)
    stop = np.int64(offsets[n])
    i = np.int64(offsets[0])
    out = np.empty(stop - i + SLACK, np.uint8)
    j = np.int64(0)
    wide = True
    for b in range(0x20, 0x7F):
        wide = wide and plain[b] == b
    most = 8 if wide else RUN
    for d in range(n):
        end = np.int64(offsets[d + 1])
        while squeeze and i < end:
            if len(symbols) > 0 and symbol_length(symbols, data, i, end) > 0:
                if symbol_length(symbols, data, i, end) == 1 and data[i] == _SPACE:
                    i += 1
                    continue
                break
            length, value = longest_rule(units, data, i, end)
            if length > 0:
                if targets[value] != _SPACE or targets[value + 1] != 0:
                    break
                i += length
            elif data[i] == _SPACE:
                i += 1
            else:
                break
        if i == end:
            new_offsets[d + 1] = j
            continue
        begun = j
        if prefix:
            if j + 3 + stop - i + SLACK > len(out):
                out = with_room(out, j, j + 3 + stop - i + SLACK)
            j = put_space(out, j, escape)
        after_space = squeeze
        while i < end:
            if wide and i + 64 < len(data):
                # What goes on with ASCII: a rule may begin with ASCII and go on behind it.
                k = min(trailing_zeros(~mask_of_range(data, i, np.uint8(0), np.uint8(0x21), np.uint8(0x5E))), end - i)
                if i + k < end and data[i + k] >= 0x80:
                    k -= 1
                if k > 0:
                    copy64(out, j, data, i)
                    i += k
                    j += k
                    after_space = False
                if i < end and data[i] == _SPACE and (i + 1 == end or data[i + 1] < 0x80):
                    if not after_space:
                        if j + 3 + stop - i + SLACK > len(out):
                            out = with_room(out, j, j + 3 + stop - i + SLACK)
                        j = put_space(out, j, escape)
                        after_space = squeeze
                    i += 1
                    continue
                if k > 0:
                    continue
            if data[i] < 0x80:
                start = i
                run = ascii_end(data, i, min(end, i + most))
                if run < end and data[run] >= 0x80:
                    run -= 1
                if j + 3 * (run - i) + stop - run + SLACK > len(out):
                    out = with_room(out, j, j + 3 * (run - i) + stop - run + SLACK)
                while i < run:
                    b = plain[data[i]]
                    if b == _SPACE:
                        if not after_space:
                            j = put_space(out, j, escape)
                            after_space = squeeze
                    elif b < 0x80:
                        out[j] = b
                        j += 1
                        after_space = False
                    else:
                        break
                    i += 1
                if i == run and i > start:
                    continue
            c, width = decode(data, i)
            length = np.int64(0)
            value = np.int64(0)
            source = i
            kept = np.int64(0)
            if begins[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)]:
                if len(symbols) > 0:
                    kept = symbol_length(symbols, data, i, end)
                if kept == 0:
                    length, value = longest_rule(units, data, i, end)
            if length == 0 and kept == 0 and c != _SPACE:
                for k in range(width):
                    out[j + k] = data[i + k]
                j += width
                i += width
                after_space = False
                continue
            kept = max(kept, width)
            if length > 0:
                i += length
                kept = 0
                while targets[value + kept] != 0:
                    kept += 1
            else:
                i += kept
            if j + 3 * kept + stop - i + SLACK > len(out):
                out = with_room(out, j, j + 3 * kept + stop - i + SLACK)
            k = 0
            while k < kept:
                b = targets[value + k] if length > 0 else data[source + k]
                if b != _SPACE or not after_space:
                    break
                k += 1
            if k < kept:
                while k < kept:
                    b = targets[value + k] if length > 0 else data[source + k]
                    if b == _SPACE:
                        j = put_space(out, j, escape)
                    else:
                        out[j] = b
                        j += 1
                    k += 1
                after_space = squeeze and b == _SPACE
        if squeeze:
            while True:
                if escape:
                    if j - begun < 3 or out[j - 3] != 0xE2 or out[j - 2] != 0x96 or out[j - 1] != 0x81:
                        break
                    j -= 3
                else:
                    if j == begun or out[j - 1] != _SPACE:
                        break
                    j -= 1
        if suffix:
            if j + 3 + stop - i + SLACK > len(out):
                out = with_room(out, j, j + 3 + stop - i + SLACK)
            j = put_space(out, j, escape)
        new_offsets[d + 1] = j
    return out[:j], new_offsets


@plain_kernel
def put_space(out, j, escape):
    if escape:
        out[j] = 0xE2
        out[j + 1] = 0x96
        out[j + 2] = 0x81
        return j + 3
    out[j] = _SPACE
    return j + 1


@kernel
def grapheme_end(data, i, end, pages, classes):
    """Where the extended grapheme cluster that begins at ``i`` ends.

    Pairs of regional indicators are not joined: with four bytes each it makes no difference to what is looked up whole.
    """
    c, width = decode(data, i)
    info = np.int64(classes[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)])
    if c == 0x0D and i + 1 < end and data[i + 1] == 0x0A:
        return i + 2
    i += width
    pictographic = (info & KIND) == PICTOGRAPHIC
    conjunct = info & CONSONANT
    after_joiner = False
    while i < end:
        before = info & KIND
        c, width = decode(data, i)
        info = np.int64(classes[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)])
        kind = info & KIND
        if before == CONTROL or kind == CONTROL:
            return i
        joined = kind in (EXTEND, SPACING) or before == PREPEND
        if before == JAMO_L:
            joined |= kind in (JAMO_L, JAMO_V, SYLLABLE_LV, SYLLABLE_LVT)
        elif before in (JAMO_V, SYLLABLE_LV):
            joined |= kind in (JAMO_V, JAMO_T)
        elif before in (JAMO_T, SYLLABLE_LVT):
            joined |= kind == JAMO_T
        joined |= after_joiner and kind == PICTOGRAPHIC
        joined |= (conjunct & LINKER) != 0 and (info & CONSONANT) != 0
        if not joined:
            return i
        after_joiner = pictographic and c == 0x200D
        pictographic = kind == PICTOGRAPHIC or (pictographic and kind == EXTEND)
        if info & CONSONANT:
            conjunct = info & CONSONANT
        elif info & STOPS_CONJUNCT or (kind != EXTEND and kind != SPACING):
            conjunct = np.int64(0)
        elif conjunct:
            conjunct |= info & LINKER
        i += width
    return i


@kernel
def huggingface_documents(data, offsets, units, targets, plain, pages, begins, class_pages, classes):
    """Hugging Face's Precompiled: a grapheme of less than SHORT bytes becomes the target of the shortest source that it
    begins with, all of it; where there is none, and in longer ones, each character is looked up."""
    n = len(offsets) - 1
    new_offsets = np.zeros(n + 1, np.int64)
    stop = np.int64(offsets[n])
    i = np.int64(offsets[0])
    out = np.empty(stop - i + SLACK, np.uint8)
    j = np.int64(0)
    for d in range(n):
        end = np.int64(offsets[d + 1])
        while i < end:
            if data[i] < 0x80:
                start = i
                run = ascii_end(data, i, end)
                if run < end:
                    run -= 1
                while i < run:
                    b = plain[data[i]]
                    if b >= 0x80:
                        break
                    out[j] = b
                    i += 1
                    j += 1
                if i == run and i > start:
                    continue
            c, width = decode(data, i)
            border = i + width
            info = np.int64(classes[(np.int64(class_pages[c >> 8]) << 8) | (c & 0xFF)])
            kind = info & KIND
            longer = kind in (PREPEND, JAMO_L) or c == 0x0D
            if not longer and border < end and data[border] >= 0x80:
                following, _ = decode(data, border)
                longer = (classes[(np.int64(class_pages[following >> 8]) << 8) | (following & 0xFF)] & JOINS) != 0
            if longer:
                border = grapheme_end(data, i, end, class_pages, classes)
            if border == i + width and not begins[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)]:
                for k in range(width):
                    out[j + k] = data[i + k]
                j += width
                i = border
                continue
            whole = border - i < SHORT
            while i < border:
                c, width = decode(data, i)
                value = np.int64(-1)
                consumed = width
                if begins[(np.int64(pages[c >> 8]) << 8) | (c & 0xFF)]:
                    if whole:
                        value = shortest_rule(units, data, i, border)
                        if value >= 0:
                            consumed = border - i
                    if value < 0:
                        value = shortest_rule(units, data, i, i + width)
                whole = False
                i += consumed
                if value >= 0:
                    length = 0
                    while targets[value + length] != 0:
                        length += 1
                    if j + length + stop - i + SLACK > len(out):
                        out = with_room(out, j, j + length + stop - i + SLACK)
                    for k in range(length):
                        out[j + k] = targets[value + k]
                    j += length
                else:
                    for k in range(width):
                        out[j + k] = data[i - width + k]
                    j += width
        new_offsets[d + 1] = j
    return out[:j], new_offsets
