"""Numba kernels that encode a batch of words by BPE without merging, see ``greedy_kernels``.

The longest tokens of all words come first, whether they can stand side by side or not; then that is looked into, for all of
them together, so that the memory which one waits for comes while the others have their turn. Nearly all can. A word in which
two cannot goes on from there as ``greedy_kernels`` does, up to a border that nothing is known of; then these are looked into
together, and so on.

``borders`` (int64 [8 * BATCH_BYTES]): 8 for each border to look into, see BORDER. ``words`` (int64 [16 * BATCH_WORDS]): 16 for each
word, see WORD. ``dead`` (uint8, zeros, as many as two for each byte): scratch, left zeroed. Others: see ``encode_kernels``.
"""

import numpy as np

from shardpiece.intrinsics import get, prefetch, put
from shardpiece.kernel_cache import plain_kernel
from shardpiece.tokenizer.greedy_kernels import go_on_greedily, longest_token
from shardpiece.tokenizer.pair_kernels import (
    LATER,
    NO_RANK,
    NONE,
    may_merge,
    pair_rank,
    prefetch_pair,
    seen_place,
    side_by_side_at_length,
)

BATCH_WORDS = 128
BATCH_BYTES = 4096
"""Most words of a batch, most bytes of all of them."""
FEW = 2
"""So few words are not gone on with together."""

# Of a border: the tokens at it, undone step by step; the rank under which they would have merged; the key of the two tokens as
# they are, and whose border it is: the word in the lower bits.
BORDER = 8
LEFT, RIGHT, LIMIT, KEY, WHOSE = range(5)
# Of a word: where it is, and its tokens; the first border that is none, -1; where it goes on, see ``go_on_greedily``;
# in the first words, ACTIVE: those that go on; whether it has characters that are spelled in bytes.
WORD = 16
START, STOP, BEGINS, COUNT, WRONG, POSITION, TOKEN, KNOWN, KNOWN_STOP, PLACE, OUT, DEAD, TAKEN_BACK, ACTIVE, UNKNOWN = (
    range(15)
)
_WORD_BITS = np.int64(8)

_63, _42, _21 = np.uint64(63), np.uint64(42), np.uint64(21)
_ZERO = np.uint64(0)
_LOW_21 = np.uint64((1 << 21) - 1)


@plain_kernel
def ask(m, a, b, key, whose, borders):
    """Border m of those to look into: token a, token b."""
    put(borders, BORDER * m + LEFT, a)
    put(borders, BORDER * m + RIGHT, b)
    put(borders, BORDER * m + LIMIT, 2 * NO_RANK)
    put(borders, BORDER * m + KEY, np.int64(key))
    put(borders, BORDER * m + WHOSE, whose)


@plain_kernel
def answer(i, m, fine, borders, words, seen):
    """Remember whether border i is one, as ``compatible`` does, and leave it out; where it is none, its word is wrong from
    there on. Returns how many of m are left."""
    at = BORDER * i
    key = np.uint64(get(borders, at + KEY))
    b = key & _LOW_21
    _, q = seen_place(np.int64(key >> _21), np.int64(b), seen)
    put(seen, q, (key << _21) | (b if fine else LATER))
    if not fine:
        is_wrong(get(borders, at + WHOSE), words)
    last = BORDER * (m - 1)
    for k in range(5):
        put(borders, at + k, get(borders, last + k))
    return m - 1


@plain_kernel
def is_wrong(whose, words):
    w = WORD * (whose & ((1 << _WORD_BITS) - 1))
    t = whose >> _WORD_BITS
    before = get(words, w + WRONG)
    put(words, w + WRONG, t if before < 0 else min(before, t))


@plain_kernel
def look_into(m, borders, words, direct, pairs, merged, parts, symbols, starts, seen, scratch_tokens, scratch_ranks):
    """Find out which of m borders are none that merging leaves, as ``stand_side_by_side``. ``direct``: whether the two tokens
    may merge into one, which no token can with the longest at its place."""
    for i in range(m):
        a, b = get(borders, BORDER * i + LEFT), get(borders, BORDER * i + RIGHT)
        prefetch(parts, a)
        prefetch(parts, b)
        if direct:
            prefetch_pair(a, b, pairs)
    check = direct
    while m > 0:
        i = np.int64(0)
        while i < m and check:
            at = BORDER * i
            if 2 * pair_rank(get(borders, at + LEFT), get(borders, at + RIGHT), pairs) < get(borders, at + LIMIT):
                m = answer(i, m, False, borders, words, seen)
            else:
                i += 1
        check = True
        i = np.int64(0)
        while i < m:
            at = BORDER * i
            a, b = get(borders, at + LEFT), get(borders, at + RIGHT)
            of_a, of_b = get(parts, a), get(parts, b)
            made_a, made_b = np.int64((of_a >> _42) & _LOW_21), np.int64((of_b >> _42) & _LOW_21)
            plain = (of_a & of_b) >> _63
            if made_a | made_b == 0 or plain == _ZERO:
                fine = plain != _ZERO or side_by_side_at_length(
                    a, b, pairs, merged, symbols, starts, scratch_tokens, scratch_ranks
                )
                m = answer(i, m, fine, borders, words, seen)
                continue
            undo_right = made_b >= made_a
            right_of_a, left_of_b = np.int64(of_a & _LOW_21), np.int64((of_b >> _21) & _LOW_21)
            a = a if undo_right else right_of_a
            b = left_of_b if undo_right else b
            put(borders, at + LEFT, a)
            put(borders, at + RIGHT, b)
            put(borders, at + LIMIT, 2 * (max(made_a, made_b) - 1) + np.int64(undo_right))
            prefetch_pair(a, b, pairs)
            prefetch(parts, b if undo_right else a)
            i += 1


@plain_kernel
def go_on_as_known(w, data, words, cells, shorter, lengths, sides, seen, tokens, dead):
    """``go_on_greedily`` with word w up to a border that ``seen`` does not know: returns its two tokens, (-1, -1) at the end of
    the word."""
    word = WORD * w
    start, stop = get(words, word + START), get(words, word + STOP)
    n, at = get(words, word + COUNT), get(words, word + OUT)
    position, token = get(words, word + POSITION), get(words, word + TOKEN)
    known, known_stop, place = get(words, word + KNOWN), get(words, word + KNOWN_STOP), get(words, word + PLACE)
    dead_at = get(words, word + DEAD) - start
    while token >= 0:
        if n > 0:
            a = np.int64(get(tokens, at + n - 1))
            while token >= 0 and may_merge(a, token, sides):
                key, q = seen_place(a, token, seen)
                found = get(seen, q)
                if (found >> _21) != key:
                    put(words, word + COUNT, n)
                    put(words, word + POSITION, position)
                    put(words, word + TOKEN, token)
                    put(words, word + KNOWN, known)
                    put(words, word + PLACE, place)
                    return a, token
                found &= _LOW_21
                if found != LATER:
                    token = np.int64(found) if found != NONE else np.int64(-1)
                    break
                token = np.int64(get(shorter, token))
        if token >= 0:
            after = position + np.int64(get(lengths, token))
            if get(dead, dead_at + after) == 0:
                put(tokens, at + n, np.int32(token))
                n += 1
                position = after
                if position == stop:
                    break
                while known < known_stop and place < position:
                    place += np.int64(get(lengths, np.int64(get(tokens, known))))
                    known += 1
                if known < known_stop and place == position:
                    token = np.int64(get(tokens, known))
                else:
                    token, _ = longest_token(data, position, stop, cells)
                continue
            token = np.int64(get(shorter, token))
        if token < 0:
            put(dead, dead_at + position, np.uint8(1))
            put(words, word + TAKEN_BACK, np.int64(1))
            n -= 1
            token = np.int64(get(tokens, at + n))
            position -= np.int64(get(lengths, token))
    finish(w, n, position, words, dead)
    return np.int64(-1), np.int64(-1)


@plain_kernel
def finish(w, n, position, words, dead):
    word = WORD * w
    start, stop, dead_at = get(words, word + START), get(words, word + STOP), get(words, word + DEAD)
    put(words, word + COUNT, n if position == stop else np.int64(-1))
    put(words, word + BEGINS, get(words, word + OUT))
    if get(words, word + TAKEN_BACK) != 0:
        for i in range(dead_at, dead_at + stop - start + 1):
            put(dead, i, np.uint8(0))


@plain_kernel
def begin_again(w, out, words, lengths, tokens):
    """Word w, with its tokens up to the first border that is none at tokens[out:], to go on from there."""
    word = WORD * w
    begins, wrong = get(words, word + BEGINS), get(words, word + WRONG)
    position = get(words, word + START)
    for t in range(begins, wrong + 1):
        put(tokens, out + t - begins, get(tokens, t))
        position += np.int64(get(lengths, np.int64(get(tokens, t))))
    token = np.int64(get(tokens, wrong + 1))
    put(words, word + OUT, out)
    put(words, word + POSITION, position)
    put(words, word + TOKEN, token)
    put(words, word + KNOWN, wrong + 2)
    put(words, word + KNOWN_STOP, begins + get(words, word + COUNT))
    put(words, word + PLACE, position + np.int64(get(lengths, token)))
    put(words, word + TAKEN_BACK, np.int64(0))
    put(words, word + COUNT, wrong + 1 - begins)


@plain_kernel
def encode_batch(
    n, data, words, borders, fallback, cells, shorter, lengths, pairs, merged, parts, sides, symbols, starts, seen, tokens, scratch_tokens,
    scratch_ranks, dead,
):  # fmt: skip
    """Encode n words, START to STOP in ``data``: ``tokens`` (int32), with room for twice as many as bytes, receives those of each
    from BEGINS on, COUNT of them. -1: it has to be encoded in another way, as no token begins with one of its characters and there
    are no bytes to ``fallback`` to; or there are, and a border is wrong besides."""
    at = np.int64(0)
    asked = np.int64(0)
    bytes_before = np.int64(0)
    for w in range(n):
        word = WORD * w
        position, stop = get(words, word + START), get(words, word + STOP)
        put(words, word + BEGINS, at)
        put(words, word + WRONG, np.int64(-1))
        put(words, word + UNKNOWN, np.int64(0))
        put(words, word + DEAD, bytes_before + w)
        bytes_before += stop - position
        first = at
        while position < stop:
            token, position = longest_token(data, position, stop, cells)
            if token < 0:
                if len(fallback) == 0:
                    break
                lead = get(data, position)
                width = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                for i in range(position, min(position + width, stop)):
                    put(tokens, at, get(fallback, np.int64(get(data, np.int64(i)))))
                    at += 1
                position += width
                first = at
                put(words, word + UNKNOWN, np.int64(1))
                continue
            put(tokens, at, np.int32(token))
            previous = np.int64(get(tokens, max(at - 1, np.int64(0))))
            put(borders, BORDER * asked + WHOSE, ((at - 1) << _WORD_BITS) | w)
            asked += np.int64(at > first) & np.int64(may_merge(previous, token, sides))
            at += 1
        put(words, word + COUNT, at - get(words, word + BEGINS) if position >= stop else np.int64(-1))
    m = np.int64(0)
    for i in range(asked):
        whose = get(borders, BORDER * i + WHOSE)
        t = whose >> _WORD_BITS
        a, b = np.int64(get(tokens, t)), np.int64(get(tokens, t + 1))
        key, q = seen_place(a, b, seen)
        found = get(seen, q)
        is_known = (found >> _21) == key
        if is_known & ((found & _LOW_21) != np.uint64(b)):
            is_wrong(whose, words)
        ask(m, a, b, key, whose, borders)
        m += np.int64(not is_known)
    look_into(m, borders, words, False, pairs, merged, parts, symbols, starts, seen, scratch_tokens, scratch_ranks)
    active = np.int64(0)
    for w in range(n):
        word = WORD * w
        if get(words, word + WRONG) < 0 or get(words, word + COUNT) < 0:
            continue
        if get(words, word + UNKNOWN) != 0:
            put(words, word + COUNT, np.int64(-1))
        else:
            begin_again(np.int64(w), at, words, lengths, tokens)
            at += get(words, word + STOP) - get(words, word + START)
            put(words, WORD * active + ACTIVE, np.int64(w))
            active += 1
    while active > FEW:
        m = np.int64(0)
        for x in range(active):
            w = get(words, WORD * x + ACTIVE)
            a, b = go_on_as_known(w, data, words, cells, shorter, lengths, sides, seen, tokens, dead)
            if a >= 0:
                ask(m, a, b, seen_place(a, b, seen)[0], w, borders)
                put(words, WORD * m + ACTIVE, w)
                m += 1
        look_into(m, borders, words, True, pairs, merged, parts, symbols, starts, seen, scratch_tokens, scratch_ranks)
        active = m
    for x in range(active):
        w = get(words, WORD * x + ACTIVE)
        word = WORD * w
        count, position = go_on_greedily(
            data, get(words, word + START), get(words, word + STOP), get(words, word + COUNT), get(words, word + POSITION),
            get(words, word + TOKEN), get(words, word + KNOWN), get(words, word + KNOWN_STOP), get(words, word + PLACE), cells,
            shorter, lengths, pairs, merged, parts, sides, symbols, starts, seen, scratch_tokens, scratch_ranks,
            dead[get(words, word + DEAD) :], tokens, get(words, word + OUT),
        )  # fmt: skip
        finish(w, count, position, words, dead)
