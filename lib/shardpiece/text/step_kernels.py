"""Numba kernels of the pre-tokenization steps that do more than split: what happens to matches and to the text between
them, white space marked by a character, digits grouped from the right.

Words lie one after the other: word w is data[ends[w - 1]:ends[w]], the first one begins at ``start``. Words are grouped
twice: piece p, what the step before has made, holds the words piece_ends[p - 1] up to piece_ends[p].
"""

import numpy as np

from shardpiece.intrinsics import mask_of_range, trailing_zeros
from shardpiece.kernel_cache import plain_kernel
from shardpiece.text.dfa import DEAD, START

CONTIGUOUS = 0
MERGED_WITH_PREVIOUS = 1
MERGED_WITH_NEXT = 2

PREPEND_NEVER = 0
PREPEND_FIRST = 1
PREPEND_ALWAYS = 2

_SPACE = 0x20


@plain_kernel
def class_of_character(data, position, end, class_of):
    """(class, width in bytes) of the character at a byte >= 0x80 of valid UTF-8; one cut off by ``end`` is U+FFFD."""
    b = np.int64(data[position])
    width = 2 if b < 0xE0 else 3 if b < 0xF0 else 4
    if position + width > end:
        return np.int64(class_of[0xFFFD]), 1
    code_point = b & (0xFF >> (width + 1))
    for i in range(1, width):
        code_point = (code_point << 6) | (np.int64(data[position + i]) & 0x3F)
    return np.int64(class_of[min(code_point, 0x10FFFF)]), width


@plain_kernel
def match_begins(data, start, end, class_of, ascii_step, transitions):
    """Whether a match of the automaton begins at ``start``, in a piece that ends at ``end``."""
    state = np.int64(START)
    position = start
    while position < end:
        b = np.int64(data[position])
        if b < 0x80:
            x = np.int64(ascii_step[state, b])
            position += 1
        else:
            c, width = class_of_character(data, position, end, class_of)
            x = np.int64(transitions[state, c])
            position += width
        if x & 1:
            return True
        state = x >> 1
        if state == DEAD:
            return False
    return transitions[state, transitions.shape[1] - 1] & 1 != 0


@plain_kernel
def mark_matches(data, start, ends, piece_ends, class_of, ascii_step, transitions, matched):
    """Set matched[w] (bool) where word w is a match and not what stands between two."""
    w = 0
    position = start
    for p in range(len(piece_ends)):
        last = piece_ends[p]
        if last == w:
            continue
        piece_end = ends[last - 1]
        while w < last:
            matched[w] = match_begins(data, position, piece_end, class_of, ascii_step, transitions)
            position = ends[w]
            w += 1


@plain_kernel
def merge_words(ends, piece_ends, matched, behavior, out_ends, out_piece_ends):
    """Join words within their piece; returns their number. CONTIGUOUS: neighbours that are both matches or both not;
    MERGED_WITH_PREVIOUS: a match with the text before it, if that is no match; MERGED_WITH_NEXT: with the text behind
    it. ``out_ends`` may be ``ends``."""
    n = 0
    w = 0
    for p in range(len(piece_ends)):
        first = w
        while w < piece_ends[p]:
            joined = False
            if w > first:
                if behavior == CONTIGUOUS:
                    joined = matched[w] == matched[w - 1]
                elif behavior == MERGED_WITH_PREVIOUS:
                    joined = matched[w] and not matched[w - 1]
                else:
                    joined = matched[w - 1] and not matched[w]
            if not joined:
                n += 1
            out_ends[n - 1] = ends[w]
            w += 1
        out_piece_ends[p] = n
    return n


@plain_kernel
def remove_words(data, start, ends, piece_ends, dropped, out, out_ends, out_piece_ends):
    """Copy the words that are not ``dropped`` (bool) to ``out``, from 0 on; returns their number."""
    n = 0
    w = 0
    at = 0
    position = start
    for p in range(len(piece_ends)):
        while w < piece_ends[p]:
            end = ends[w]
            if not dropped[w]:
                for i in range(position, end):
                    out[at + i - position] = data[i]
                at += end - position
                out_ends[n] = at
                n += 1
            position = end
            w += 1
        out_piece_ends[p] = n
    return n


@plain_kernel
def mark_spaces(data, start, ends, document_ends, at_start, mark, prepend, split, out, out_ends, out_document_ends):
    """Replace spaces with ``mark`` (uint8 [1 to 4]) and put it in front of words, in ``out`` from 0 on; with ``split``, a
    word begins at every mark. PREPEND_ALWAYS: in front of every word that does not begin with it;
    PREPEND_FIRST: only of one that begins its document (at_start[d], bool). Returns the number of words."""
    width = len(mark)
    n = 0
    w = 0
    at = 0
    position = start
    for d in range(len(document_ends)):
        first = w
        while w < document_ends[d]:
            end = ends[w]
            word_start = at
            if prepend == PREPEND_ALWAYS or (prepend == PREPEND_FIRST and w == first and at_start[d]):
                marked = data[position] == _SPACE
                if not marked and position + width <= end:
                    marked = True
                    for i in range(width):
                        marked &= data[position + i] == mark[i]
                if not marked:
                    for i in range(width):
                        out[at + i] = mark[i]
                    at += width
            while position < end:
                b = data[position]
                marked = b == _SPACE
                step = 1
                if not marked and b == mark[0] and position + width <= end:
                    marked = True
                    for i in range(1, width):
                        marked &= data[position + i] == mark[i]
                    step = width
                if marked:
                    if split and at > word_start:
                        out_ends[n] = at
                        n += 1
                        word_start = at
                    for i in range(width):
                        out[at + i] = mark[i]
                    at += width
                    position += step
                else:
                    out[at] = b
                    at += 1
                    position += 1
            out_ends[n] = at
            n += 1
            w += 1
        out_document_ends[d] = n
    return n


@plain_kernel
def group_from_right(data, start, ends, piece_ends, matched, size, out_ends, out_piece_ends):
    """Cut words that are ``matched`` into groups of ``size`` characters, the first one taking what is left over; returns
    the number of words. ``out_ends`` needs room for a word per character."""
    n = 0
    w = 0
    position = start
    for p in range(len(piece_ends)):
        while w < piece_ends[p]:
            end = ends[w]
            if matched[w]:
                characters = 0
                for i in range(position, end):
                    if data[i] & 0xC0 != 0x80:
                        characters += 1
                for i in range(position + 1, end):
                    if data[i] & 0xC0 != 0x80:
                        characters -= 1
                        if characters % size == 0:
                            out_ends[n] = i
                            n += 1
            out_ends[n] = end
            n += 1
            position = end
            w += 1
        out_piece_ends[p] = n
    return n


@plain_kernel
def split_at_marks(data, start, ends, document_ends, mark, out_ends, out_document_ends):
    """Begin a word at every ``mark`` (uint8 [1 to 4]) in text that stays as it is; returns the number of words."""
    width = len(mark)
    one = np.uint64(1)
    n = 0
    w = 0
    position = np.int64(start)
    for d in range(len(document_ends)):
        while w < document_ends[d]:
            end = ends[w]
            i = position + 1
            while i < end:
                if i + 64 <= len(data):
                    found = mask_of_range(data, i, np.uint8(0), mark[0], np.uint8(1))
                    size = np.int64(64)
                else:
                    found = np.uint64(data[i] == mark[0])
                    size = np.int64(1)
                while found != 0:
                    k = i + trailing_zeros(found)
                    found &= found - one
                    marked = k + width <= end
                    for b in range(1, width):
                        marked = marked and data[k + b] == mark[b]
                    if marked:
                        out_ends[n] = k
                        n += 1
                i += size
            out_ends[n] = end
            n += 1
            w += 1
            position = end
        out_document_ends[d] = n
    return n
