"""Numba kernel that splits documents by a compiled pattern.

``step`` (uint16 [states * 256]) holds the transition of each state and ASCII byte, OTHER for bytes from 0x80 on;
``transitions`` (uint16 [states, classes + 1]) those of each class (see ``dfa``). ``loops`` (uint8 [states * 256]) is 1
where a state leads to itself with a match before the byte: such runs are skipped without the chain of table look-ups.
``range_loops`` (uint64 [states, 3]) does eight bytes at a time for states that loop over a range of ASCII letters (see
``letter_range``); the third value is 0 for the others.

Reads beyond a document stop at the end of the data, for valid UTF-8 and anything else.
"""

import numpy as np

from shardpiece.intrinsics import load64, trailing_zeros
from shardpiece.kernel_cache import kernel
from shardpiece.text.dfa import DEAD, START

OTHER = np.uint16(0xFFFF)

DONE = 0
FULL = 1
TOO_MUCH_WORK = 2

STATE_DOCUMENT = 0
STATE_POSITION = 1
STATE_WORD_START = 2
STATE_WORDS = 3
STATE_WORK = 4
STATE_SIZE = 5

_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_REPLACEMENT = 0xFFFD


@kernel
def decode_class(data, position, end, class_of):
    """Class and width in bytes of the character at a byte >= 0x80; a sequence cut off by ``end`` is U+FFFD."""
    b = np.int64(data[position])
    if b < 0xE0:
        if position + 2 > end:
            return np.int64(class_of[_REPLACEMENT]), np.int64(1)
        return np.int64(class_of[((b & 0x1F) << 6) | (np.int64(data[position + 1]) & 0x3F)]), np.int64(2)
    if b < 0xF0:
        if position + 3 > end:
            return np.int64(class_of[_REPLACEMENT]), np.int64(1)
        code_point = (
            ((b & 0x0F) << 12) | ((np.int64(data[position + 1]) & 0x3F) << 6) | (np.int64(data[position + 2]) & 0x3F)
        )
        return np.int64(class_of[code_point]), np.int64(3)
    if position + 4 > end:
        return np.int64(class_of[_REPLACEMENT]), np.int64(1)
    code_point = (
        ((b & 0x07) << 18)
        | ((np.int64(data[position + 1]) & 0x3F) << 12)
        | ((np.int64(data[position + 2]) & 0x3F) << 6)
        | (np.int64(data[position + 3]) & 0x3F)
    )
    if code_point > 0x10FFFF:
        code_point = np.int64(_REPLACEMENT)
    return np.int64(class_of[code_point]), np.int64(4)


@kernel
def range_end(data, position, end, fold, below, above):
    """End of the run of letters from ``position``: bytes b with first <= b | fold <= last, eight at a time; ``below``
    and ``above`` are 0x80 - first and 0x7F - last in every byte."""
    while position + 8 <= end:
        x = load64(data, position)
        folded = (x | fold) & _LOW_BITS
        inside = (folded + below) & ~(folded + above) & ~x & _HIGH_BITS
        outside = inside ^ _HIGH_BITS
        if outside != 0:
            return position + (trailing_zeros(outside) >> 3)
        position += 8
    return position


@kernel
def match_end(data, start, end, class_of, step, transitions, loops, range_loops):
    """(end of the match that begins at ``start``, or ``start`` if there is none; how far was read)."""
    columns = transitions.shape[1]
    state = np.int64(START)
    position = start
    last = start
    while position < end:
        b = np.int64(data[position])
        x = np.int64(step[(state << 8) | b])
        width = np.int64(1)
        if x == OTHER:
            c, width = decode_class(data, position, end, class_of)
            x = np.int64(transitions[state, c])
        if x & 1:
            last = position
        state = x >> 1
        if state == DEAD:
            return last, position
        position += width
        above = range_loops[state, 2]
        if above != 0:
            run = range_end(data, position, end, range_loops[state, 0], range_loops[state, 1], above)
            if run > position:
                last = run - 1
                position = run
        elif loops[state << 8]:
            run = position
            while run < end and loops[(state << 8) | np.int64(data[run])] & 1:
                run += 1
            if run > position:
                last = run - 1
                position = run
    if transitions[state, columns - 1] & 1:
        last = end
    return last, position


@kernel
def split_documents(
    data, offsets, class_of, step, transitions, loops, range_loops, work_per_document, ends, document_ends, state
):
    """Write the end of every word to ``ends`` and the number of words up to each document to ``document_ends``.

    Returns DONE; FULL when ``ends`` must grow (call again with the same ``state``); or TOO_MUCH_WORK when one document
    took more than ``work_per_document`` steps plus a hundred per byte: state[STATE_DOCUMENT] names it. Characters
    between matches make words of their own.
    """
    d = state[STATE_DOCUMENT]
    words = state[STATE_WORDS]
    position = state[STATE_POSITION]
    word_start = state[STATE_WORD_START]
    work = state[STATE_WORK]
    status = DONE
    while d < len(offsets) - 1:
        end = np.int64(offsets[d + 1])
        budget = work_per_document + 100 * (end - np.int64(offsets[d]))
        while position < end:
            # A gap and a match at most, and what is left at the end.
            if words + 3 > len(ends):
                status = FULL
                break
            match, read = match_end(data, position, end, class_of, step, transitions, loops, range_loops)
            work += read - position + 1
            if match == position:
                position += 1
                while position < end and (data[position] & 0xC0) == 0x80:
                    position += 1
            else:
                if position > word_start:
                    ends[words] = position
                    words += 1
                ends[words] = match
                words += 1
                position = match
                word_start = match
            if work > budget:
                status = TOO_MUCH_WORK
                break
        if status != DONE:
            break
        if word_start < end:
            if words >= len(ends):
                status = FULL
                break
            ends[words] = end
            words += 1
        document_ends[d] = words
        position = end
        word_start = end
        work = 0
        d += 1
    state[STATE_DOCUMENT] = d
    state[STATE_WORDS] = words
    state[STATE_POSITION] = position
    state[STATE_WORD_START] = word_start
    state[STATE_WORK] = work
    return status
