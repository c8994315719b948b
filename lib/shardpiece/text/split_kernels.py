"""Numba kernels that split documents by a compiled pattern.

``transduce`` takes a look-up for one or two characters and has no branch that depends on where words end: see
``splitter`` for the machine it runs. ``match_end`` runs the automaton itself for one word, where that machine gives up. Most text of the
published patterns goes through ``window_kernels``, several times as fast.

Classes of characters: ``ascii_classes`` uint8 [128]; otherwise code point c has the class
``block_classes``[``blocks``[c >> 6] << 6 | c & 63] (uint16 [0x110000 >> 6], uint8), so that a script stays in the cache.

Reads beyond a document stop at the end of the data, for valid UTF-8 and anything else.
"""

import numpy as np

from shardpiece.intrinsics import get, get_sum, put
from shardpiece.kernel_cache import plain_kernel
from shardpiece.text.dfa import DEAD, START
from shardpiece.text.window_kernels import NO_WINDOWS, WINDOW_ROOM, split_windows

DONE = 0
FULL = 1
TOO_MUCH_WORK = 2

STATE_DOCUMENT = 0
STATE_WORD_START = 1
STATE_WORDS = 2
STATE_WORK = 3
STATE_SIZE = 4

GIVE_UP = 0
SLOTS = 8
"""Words that the machine may leave open at a time; ``ends`` needs this much room behind the words."""

# Bytes that the machine runs before windows are tried again, doubled as long as those get less than _FEW_BYTES ahead;
# documents of less than that are left to the machine.
_LEAST_STRIDE = 64
_MOST_STRIDE = 4096
_FEW_BYTES = 32

_REPLACEMENT_BLOCK = 0xFFFD >> 6
_REPLACEMENT_OFFSET = 0xFFFD & 63
_LAST_BLOCK = 0x10FFFF >> 6


@plain_kernel
def class_at(data, position, end, ascii_classes, blocks, block_classes):
    """Class and width in bytes of the character at position < end; a sequence cut off by ``end`` is U+FFFD."""
    b = np.int64(get(data, position))
    if b < 0x80:
        return np.int64(get(ascii_classes, b)), np.int64(1)
    block = np.int64(_REPLACEMENT_BLOCK)
    offset = np.int64(_REPLACEMENT_OFFSET)
    width = np.int64(1)
    if b < 0xE0:
        if position + 2 <= end:
            block = b & 0x1F
            offset = np.int64(get(data, position + 1)) & 0x3F
            width = np.int64(2)
    elif b < 0xF0:
        if position + 3 <= end:
            block = ((b & 0x0F) << 6) | (np.int64(get(data, position + 1)) & 0x3F)
            offset = np.int64(get(data, position + 2)) & 0x3F
            width = np.int64(3)
    elif position + 4 <= end:
        block = (
            ((b & 0x07) << 12)
            | ((np.int64(get(data, position + 1)) & 0x3F) << 6)
            | (np.int64(get(data, position + 2)) & 0x3F)
        )
        offset = np.int64(get(data, position + 3)) & 0x3F
        width = np.int64(4)
        if block > _LAST_BLOCK:
            block = np.int64(_REPLACEMENT_BLOCK)
            offset = np.int64(_REPLACEMENT_OFFSET)
    return np.int64(get(block_classes, (np.int64(get(blocks, block)) << 6) | offset)), width


@plain_kernel
def transduce(
    data, position, limit, end, ascii_classes, blocks, block_classes, firsts, seconds, following, output, state, ends, words
):  # fmt: skip
    """Run the machine from ``position`` until ``limit`` is reached or it gives up: (position, state, words).

    ``following`` (uint32) and ``output`` (uint16) are indexed by state + class; output is the word whose end is set to
    the position, counted from ``words``, plus 8 times the number of words that are settled. Two ASCII characters are
    read at once at state + ``firsts``[one] + ``seconds``[other] (uint16 and uint8 [128], or empty): the upper half of
    the output is the second's. The caller guarantees limit <= end and room for limit - position + SLOTS more words.
    """
    pairs = len(firsts) > 0
    while position < limit:
        while pairs and position + 1 < limit:
            first = np.int64(get(data, position))
            second = np.int64(get(data, position + 1))
            if (first | second) >= 0x80:
                break
            pair = np.int64(get(firsts, first)) + np.int64(get(seconds, second))
            out = np.int64(get_sum(output, pair, state))
            state = np.int64(get_sum(following, pair, state))
            if state == GIVE_UP:
                return position, state, words
            put(ends, words + (out & 7), position)
            words += (out >> 3) & 31
            put(ends, words + ((out >> 8) & 7), position + 1)
            words += out >> 11
            position += 2
        if position >= limit:
            break
        c, width = class_at(data, position, end, ascii_classes, blocks, block_classes)
        out = np.int64(get_sum(output, c, state))
        state = np.int64(get_sum(following, c, state))
        if state == GIVE_UP:
            break
        put(ends, words + (out & 7), position)
        words += out >> 3
        position += width
    return position, state, words


@plain_kernel
def match_end(data, start, end, ascii_classes, blocks, block_classes, transitions):
    """(end of the match that begins at ``start``, or ``start`` if there is none; how far was read)."""
    state = np.int64(START)
    position = start
    last = start
    while position < end:
        c, width = class_at(data, position, end, ascii_classes, blocks, block_classes)
        x = np.int64(transitions[state, c])
        if x & 1:
            last = position
        state = x >> 1
        if state == DEAD:
            return last, position
        position += width
    if transitions[state, transitions.shape[1] - 1] & 1:
        last = end
    return last, position


@plain_kernel
def split_one(data, start, end, ascii_classes, blocks, block_classes, transitions, ends, words, budget):
    """The first match in data[start:end] and the gap before it: (position behind it, words, steps taken). Steps above
    ``budget`` mean that it stopped early."""
    position = start
    work = 0
    while position < end and work <= budget:
        match, read = match_end(data, position, end, ascii_classes, blocks, block_classes, transitions)
        work += read - position + 1
        if match > position:
            if position > start:
                put(ends, words, position)
                words += 1
            put(ends, words, match)
            return match, words + 1, work
        position += 1
        while position < end and (data[position] & 0xC0) == 0x80:
            position += 1
    put(ends, words, end)
    return end, words + 1, work


@plain_kernel
def split_short_documents(
    data,
    offsets,
    ascii_classes,
    blocks,
    block_classes,
    firsts,
    seconds,
    begin,
    last,
    following,
    output,
    ends,
    document_ends,
    d,
    start,
    words,
):
    """The machine alone on documents of a few bytes, of which there may be very many: (first document that is longer,
    or that this cannot split; where it begins; words)."""
    while d < len(offsets) - 1:
        end = np.int64(get(offsets, d + 1))
        if end - start >= _FEW_BYTES or words + WINDOW_ROOM > len(ends):
            break
        if end > start:
            _, machine, found = transduce(
                data, start, end, end, ascii_classes, blocks, block_classes, firsts, seconds,
                following, output, begin, ends, words,
            )  # fmt: skip
            if get_sum(following, last, machine) == GIVE_UP:
                break
            out = np.int64(get_sum(output, last, machine))
            put(ends, found + (out & 7), end)
            words = found + (out >> 3)
            start = end
        put(document_ends, d, words)
        d += 1
    return d, start, words


@plain_kernel
def split_documents(
    data,
    offsets,
    ascii_classes,
    blocks,
    block_classes,
    transitions,
    firsts,
    seconds,
    begin,
    following,
    output,
    windows,
    work_per_document,
    ends,
    document_ends,
    state,
):
    """Write the end of every word to ``ends`` and the number of words up to each document to ``document_ends``.

    ``begin`` (int64) is the machine's first state, ``windows`` a kind of window (see ``window_kernels``). Returns DONE;
    FULL when ``ends`` must grow (call again with the same ``state``); or TOO_MUCH_WORK when one document took more than
    ``work_per_document`` steps plus a hundred per byte: state[STATE_DOCUMENT] names it. Characters between matches make
    words of their own.
    """
    last = transitions.shape[1] - 1
    d = state[STATE_DOCUMENT]
    words = state[STATE_WORDS]
    start = state[STATE_WORD_START]
    work = state[STATE_WORK]
    stride = np.int64(_LEAST_STRIDE)
    status = DONE
    while d < len(offsets) - 1:
        end = np.int64(get(offsets, d + 1))
        if end - start < _FEW_BYTES and work == 0:
            d, start, words = split_short_documents(
                data, offsets, ascii_classes, blocks, block_classes, firsts, seconds, begin, last,
                following, output, ends, document_ends, d, start, words,
            )  # fmt: skip
            if d == len(offsets) - 1:
                break
            end = np.int64(get(offsets, d + 1))
        budget = work_per_document + 100 * (end - np.int64(offsets[d]))
        while start < end:
            if words + WINDOW_ROOM > len(ends):
                status = FULL
                break
            limit = end
            if windows != NO_WINDOWS and end - start >= _FEW_BYTES:
                before = start
                start, words = split_windows(data, start, end, windows, ends, words)
                if words + WINDOW_ROOM > len(ends):
                    status = FULL
                    break
                stride = min(stride * 2, _MOST_STRIDE) if start - before < _FEW_BYTES else _LEAST_STRIDE
                limit = min(end, start + stride)
            # As far as there is room, from one settled end of a word to another.
            before = words
            position = start
            machine = begin
            while True:
                limit = min(limit, position + len(ends) - words - SLOTS)
                position, machine, words = transduce(
                    data, position, limit, end, ascii_classes, blocks, block_classes, firsts, seconds,
                    following, output, machine, ends, words,
                )  # fmt: skip
                if machine == GIVE_UP or position >= end or words > before or words + WINDOW_ROOM > len(ends):
                    break
                limit = min(end, position + stride)
            if words > before:
                start = ends[words - 1]
            if machine != GIVE_UP and position >= end:
                out = np.int64(get_sum(output, last, machine))
                machine = np.int64(get_sum(following, last, machine))
                if machine != GIVE_UP:
                    put(ends, words + (out & 7), end)
                    words += out >> 3
                    start = end
            if machine == GIVE_UP:
                work += position - start
                start, words, steps = split_one(
                    data, start, end, ascii_classes, blocks, block_classes, transitions, ends, words, budget - work
                )
                work += steps
                if work > budget:
                    status = TOO_MUCH_WORK
                    break
        if status != DONE:
            break
        document_ends[d] = words
        work = 0
        d += 1
    state[STATE_DOCUMENT] = d
    state[STATE_WORDS] = words
    state[STATE_WORD_START] = start
    state[STATE_WORK] = work
    return status
