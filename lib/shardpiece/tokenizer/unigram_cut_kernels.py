"""Numba kernels that cut raw documents into the pieces that ``raw_unigram_kernels`` looks up, 64 bytes at a time.

Documents are cut at ASCII white space, and before or behind ASCII letters, as ``raw_word_kernels`` does it; and also where
characters begin or end that are INERT: that occur in no piece of the model, and that the normalizer leaves as they are
whatever is next to them. A run of these is a piece of its own: it is unknown, whatever it is, and needs no cache.

``classes`` (uint8, by way of ``pages``, see ``character_kernels``; empty: no character is inert) says of characters whether they
are INERT; whether they become a SPACE and nothing else; begin a longer source (STARTS) or occur in one further behind (LATER);
or become, alone or with others, nothing or something with a space in it (ODD). Text is not cut between STARTS and LATER, where
a source might lie across, nor next to what is ODD: a piece's spaces at its ends are dropped, and one of which nothing is left
adds no ▁.

``starts`` (int64) has the kind of a piece in its lowest KIND_BITS: MARKED, ▁ is in front of it; WHOLE, it is a document that is
not to be looked up; IS_INERT. ``stops`` (int64); ``last_pieces`` (int64 [documents]): the number of pieces of the block up to
the end of each document that ends in it. ``cursor`` (int64 [CURSOR]): where the kernels have come to, PLACE offsets[0] and OPEN
-1 at the beginning, the others 0.
"""

import numpy as np

from shardpiece.intrinsics import bit_count, get, mask_of_range, prefetch, put, trailing_zeros
from shardpiece.kernel_cache import inlined_kernel, plain_kernel
from shardpiece.text.normalization.character_kernels import decode
from shardpiece.tokenizer.raw_word_kernels import LONGEST, SHORT, key_of_long, key_of_short, look_over
from shardpiece.tokenizer.word_cache_kernels import NO_BUCKET, long_bucket, short_bucket

BLOCK = 512
# Of 64 bytes each may begin a piece, one may be open before them, and four are written at once.
ROOM = BLOCK + 72

MARKED, WHOLE, IS_INERT = 1, 2, 4
KIND_BITS = 3

CHINESE, CHINESE_LEADS = 0xE4, 6
"""With so many bytes from this one on begin the Chinese characters, which are taken together."""

INERT, SPACE, STARTS, LATER, ODD = 1, 2, 4, 8, 16

DOCUMENT, PLACE, OPEN, CARRY, LETTER, UNKNOWN, AT, ENDED, BEGIN, DONE, KNOWN = range(11)
CURSOR = 11

_PROBES = 32
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_2, _3 = np.uint64(2), np.uint64(3)


@inlined_kernel
def class_of(c, pages, classes):
    return np.int64(get(classes, (np.int64(get(pages, c >> 8)) << 8) | (c & 0xFF)))


@plain_kernel
def is_mostly_inert(data, start, end, pages, classes):
    """Whether half of some characters of the document data[start:end] are inert."""
    found = np.int64(0)
    for k in range(_PROBES):
        i = start + (end - start) * k // _PROBES
        while i > start and (data[i] & 0xC0) == 0x80:
            i -= 1
        c, _ = decode(data, i)
        found += class_of(c, pages, classes) & INERT
    return 2 * found >= _PROBES


@plain_kernel
def is_one_piece(data, start, end, pages, classes):
    """Whether the document data[start:end] is not to be cut: it holds ▁, or there are hardly places for it."""
    marked, sparse = look_over(data, start, end)
    return marked or (sparse and (len(classes) == 0 or not is_mostly_inert(data, start, end, pages, classes)))


@inlined_kernel
def is_separate(data, k, start, pages, classes):
    """Whether text may be cut before the character at k, next to which there is an inert one."""
    i = k - 1
    while i > start and (data[i] & 0xC0) == 0x80:
        i -= 1
    before, _ = decode(data, i)
    after, _ = decode(data, k)
    a, b = class_of(before, pages, classes), class_of(after, pages, classes)
    return (a | b) & ODD == 0 and (a & STARTS == 0 or b & LATER == 0)


@inlined_kernel
def write_positions(bits, i, at, words, inert, starts):
    """Where pieces begin, for the one ``bits``, with their kinds, into starts[at:], four at once."""
    stop = at + bit_count(bits)
    while at < stop:
        for k in range(4):
            place = trailing_zeros(bits) & 63
            kind = ((words >> np.uint64(place)) & _ONE) | (((inert >> np.uint64(place)) & _ONE) << np.uint64(2))
            put(starts, at + k, ((i + place) << KIND_BITS) | np.int64(kind))
            bits &= bits - _ONE
        at += 4
    return stop


@plain_kernel
def cut_pieces(data, offsets, cursor, lines, safe, pages, classes, chinese, starts, stops, last_pieces):
    """Cut the next pieces, about BLOCK of them; returns how many, less only at the end of the last document. ``lines``,
    ``safe``: see ``raw_word_kernels``; ``chinese`` (uint8): CHINESE_LEADS if all these characters are inert, else 0."""
    n_documents = np.int64(len(offsets)) - 1
    d = cursor[DOCUMENT]
    i = cursor[PLACE]
    carry = np.uint64(cursor[CARRY])
    letter = np.uint64(cursor[LETTER])
    unknown = np.uint64(cursor[UNKNOWN])
    breaks = np.uint8(2) if lines else np.uint8(0)
    begun = np.int64(0)
    ended = np.int64(0)
    if cursor[OPEN] >= 0:
        put(starts, 0, cursor[OPEN])
        begun = np.int64(1)
    while d < n_documents and ended < BLOCK:
        end = np.int64(offsets[d + 1])
        first = np.int64(offsets[d])
        if i == first:
            carry = _ZERO
            letter = _ZERO
            unknown = _ZERO
            if i == end:
                put(last_pieces, d, ended)
                d += 1
                continue
            if is_one_piece(data, i, end, pages, classes):
                put(starts, ended, (i << KIND_BITS) | (MARKED | WHOLE))
                put(stops, ended, end)
                ended += 1
                begun = ended
                put(last_pieces, d, ended)
                d += 1
                i = end
                continue
        width = min(np.int64(64), end - i)
        if i + 64 <= len(data):
            spaces = mask_of_range(data, i, np.uint8(0), np.uint8(0x20), np.uint8(1))
            spaces |= mask_of_range(data, i, np.uint8(0), np.uint8(9), breaks)
            letters = mask_of_range(data, i, np.uint8(0x20), np.uint8(0x61), np.uint8(26))
            leads = mask_of_range(data, i, np.uint8(0), np.uint8(0xC0), np.uint8(0x40))
        else:
            spaces = _ZERO
            letters = _ZERO
            leads = _ZERO
            for k in range(width):
                b = data[i + k]
                bit = _ONE << np.uint64(k)
                if b == 0x20 or np.uint8(b - 9) < breaks:
                    spaces |= bit
                elif np.uint8((b | 0x20) - 0x61) < 26:
                    letters |= bit
                elif b >= 0xC0:
                    leads |= bit
        inert = _ZERO
        if leads != _ZERO and len(classes) > 0:
            # Up to where a character ends.
            for _ in range(3):
                if i + width < end and width > 1 and (data[i + width] & 0xC0) == 0x80:
                    width -= 1
        valid = ~_ZERO if width == 64 else (_ONE << np.uint64(width)) - _ONE
        if leads != _ZERO and len(classes) > 0:
            if i + 64 <= len(data):
                found = mask_of_range(data, i, np.uint8(0), np.uint8(CHINESE), chinese)
                inert = found | (found << _ONE) | (found << _2)
                leads &= ~found
                threes = mask_of_range(data, i, np.uint8(0), np.uint8(0xE0), np.uint8(0x20))
                fours = mask_of_range(data, i, np.uint8(0), np.uint8(0xF0), np.uint8(0x10))
            else:
                threes = leads
                fours = leads
            # Only characters that are there as a whole.
            leads &= (valid >> _ONE) & (~threes | (valid >> _2)) & (~fours | (valid >> _3))
            while leads != _ZERO:
                place = trailing_zeros(leads)
                k = i + place
                b = np.int64(get(data, k))
                c = np.int64(get(data, k + 1)) & 0x3F
                size = np.uint64(3)  # bits of the bytes
                if b < 0xE0:
                    c |= (b & 0x1F) << 6
                else:
                    c = (c << 6) | (np.int64(get(data, k + 2)) & 0x3F)
                    size = np.uint64(7)
                    if b < 0xF0:
                        c |= (b & 0x0F) << 12
                    else:
                        c = min((c << 6) | (np.int64(get(data, k + 3)) & 0x3F) | ((b & 0x07) << 18), np.int64(0x10FFFF))
                        size = np.uint64(15)
                kind = np.uint64(class_of(c, pages, classes))
                bits = size << np.uint64(place)
                inert |= bits & (_ZERO - (kind & _ONE))
                spaces |= bits & (_ZERO - ((kind >> _ONE) & _ONE))
                leads &= leads - _ONE
            inert &= valid
        # ``carry``: whether there is a character of a word before; ``letter``, a letter; ``unknown``, an inert one.
        inside = ~spaces & valid
        behind = (inside << _ONE) | carry
        between = inside & behind
        found = (letters ^ ((letters << _ONE) | letter)) & between
        cuts = _ZERO
        while found != _ZERO:
            place = trailing_zeros(found)
            k = i + place
            a, b = np.int64(get(data, k - 1)), np.int64(get(data, k))
            ascii = (a | b | np.int64(get(data, min(k + 1, end - 1)))) < 0x80
            fits = ascii & safe[((a & 0x7F) << 7) | (b & 0x7F)]
            cuts |= np.uint64(fits) << np.uint64(place)
            found &= found - _ONE
        whole = _ZERO
        if (inert | unknown) != _ZERO:
            found = (inert ^ ((inert << _ONE) | unknown)) & between
            while found != _ZERO:
                bit = found & (_ZERO - found)
                found ^= bit
                if is_separate(data, i + trailing_zeros(bit), first, pages, classes):
                    cuts |= bit
                else:
                    whole |= bit
        words = inside & ~behind
        begins = words | cuts
        before = begun
        begun = write_positions(begins, i, begun, words, inert, starts)
        while whole != _ZERO:  # the piece around such a place is not inert
            bit = whole & (_ZERO - whole)
            j = before + bit_count(begins & (bit - _ONE)) - 1
            put(starts, j, get(starts, j) & ~np.int64(IS_INERT))
            whole ^= bit
        ends = (behind & ~inside & valid) | cuts
        last = ended + bit_count(ends)
        while ended < last:
            for k in range(4):
                put(stops, ended + k, i + trailing_zeros(ends))
                ends &= ends - _ONE
            ended += 4
        ended = last
        top = np.uint64(width - 1)
        carry = (inside >> top) & _ONE
        letter = (letters >> top) & _ONE
        unknown = (inert >> top) & _ONE
        i += width
        if i == end:
            if begun > ended:
                put(stops, ended, end)
                ended += 1
            put(last_pieces, d, ended)
            d += 1
    cursor[DOCUMENT] = d
    cursor[PLACE] = i
    cursor[OPEN] = get(starts, ended) if begun > ended else np.int64(-1)
    cursor[CARRY] = np.int64(carry)
    cursor[LETTER] = np.int64(letter)
    cursor[UNKNOWN] = np.int64(unknown)
    cursor[DONE] = np.int64(d == n_documents)
    return ended


@plain_kernel
def make_keys(count, data, starts, stops, lows, highs, buckets, short_table, long_table):
    """The keys of ``count`` pieces, as ``prepare_words`` of ``word_cache_kernels`` has them, and ask for their buckets."""
    for j in range(count):
        packed = get(starts, j)
        start = packed >> KIND_BITS
        stop = get(stops, j)
        n = stop - start
        marked = packed & MARKED
        if n > SHORT or packed & (WHOLE | IS_INERT) != 0:
            if n > LONGEST or packed & (WHOLE | IS_INERT) != 0:
                put(buckets, j, NO_BUCKET)
                continue
            h = key_of_long(data, start, stop, marked)
            bucket = long_bucket(h, long_table)
            put(lows, j, h)
            put(buckets, j, ~bucket)
            prefetch(long_table, bucket)
            continue
        lo, hi = key_of_short(data, start, n, marked)
        bucket = short_bucket(lo, hi, short_table)
        put(lows, j, lo)
        put(highs, j, hi)
        put(buckets, j, bucket)
        prefetch(short_table, bucket)
