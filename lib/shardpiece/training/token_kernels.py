"""Numba kernels about the tokens of the merge loop: how they are spelled, which goes first, which may be made.

A token is a sequence of base symbols; its spelling is bytes. The spelling of a merge is that of the left token and that
of the right one without the continuing prefix (``##``), if it starts with it.
"""

from typing import NamedTuple

import numpy as np

from shardpiece.intrinsics import MIX_1
from shardpiece.kernel_cache import plain_kernel

TIE_ID = 0
TIE_LEXICOGRAPHIC = 1
TIE_LEXICOGRAPHIC_LAST = 2
TIE_FIRST_SEEN = 3
TIE_SENTENCEPIECE = 4

ANY_SCRIPT = 0
INHERITED_SCRIPT = 255
KIND_LETTER = 1
KIND_NUMBER = 2
KIND_DIGIT = 4
KIND_PLAIN_DIGIT = 8

_WHITESPACE_FRONT = 1
_WHITESPACE_FRONT_OR_INSIDE = 2
_WHITESPACE_END = 3
_WHITESPACE_END_OR_INSIDE = 4
_LOWER_BLOCK = 0x2581
_LOW_32 = np.int64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)
_HASH_BASE = np.uint64(0x9DDFEA08EB382D69)  # any odd number with mixed bits


class Tokens(NamedTuple):
    """The spelled tokens, by id; behind the ids of the vocabulary come the reserved strings, numbered on."""

    start: np.ndarray  # int64, where the spelling begins in ``data``
    size: np.ndarray  # int32, its bytes
    data: np.ndarray  # uint8
    length: np.ndarray  # int32, base symbols
    head: np.ndarray  # uint64, the first eight bytes, big-endian
    drop: np.ndarray  # int32, bytes of the continuing prefix that the token starts with
    hash: np.ndarray  # uint64, polynomial hash of the spelling
    tail_hash: np.ndarray  # uint64, the same without the continuing prefix
    tail_power: np.ndarray  # uint64, the hash's base to the power of (size - drop)


class RuleTables(NamedTuple):
    """``MergeRules`` for the kernels."""

    active: bool
    script: np.ndarray  # uint8 [0x110000]
    kind: np.ndarray  # uint8 [0x110000], KIND_ bits
    end_marker: np.ndarray  # uint8
    letters_and_digits: bool
    scripts: bool
    digits_join: bool
    max_digits: int
    digits_alone: bool
    whitespace: int
    whitespace_only: bool


class Filter(NamedTuple):
    """What decides whether a merge may happen."""

    max_length: int  # base symbols
    unique: bool  # spellings of tokens are entered into ``taken``
    taken: np.ndarray  # int32, power of two: open-addressing set of spellings, token id + 1, 0 = empty
    taken_used: bool  # whether ``taken`` has anything
    prefix: np.ndarray  # uint8, the continuing prefix


@plain_kernel
def set_spelling(token, tokens, prefix):
    """Fill in what follows from the bytes of a token."""
    start = tokens.start[token]
    size = np.int64(tokens.size[token])
    head = np.uint64(0)
    for i in range(min(np.int64(8), size)):
        head |= np.uint64(tokens.data[start + i]) << np.uint64(56 - 8 * i)
    tokens.head[token] = head
    drop = len(prefix) if len(prefix) <= size else 0
    for i in range(drop):
        if tokens.data[start + i] != prefix[i]:
            drop = 0
            break
    tokens.drop[token] = drop
    whole = np.uint64(0)
    tail = np.uint64(0)
    power = np.uint64(1)
    for i in range(size):
        byte = np.uint64(tokens.data[start + i]) + np.uint64(1)
        whole = whole * _HASH_BASE + byte
        if i >= drop:
            tail = tail * _HASH_BASE + byte
            power *= _HASH_BASE
    tokens.hash[token] = whole
    tokens.tail_hash[token] = tail
    tokens.tail_power[token] = power


@plain_kernel
def set_spellings(first, last, tokens, prefix):
    """``set_spelling`` for the ids first <= id < last."""
    for token in range(first, last):
        set_spelling(token, tokens, prefix)


@plain_kernel
def joined_size(left, right, tokens):
    """Bytes of the merge's spelling."""
    return np.int64(tokens.size[left]) + np.int64(tokens.size[right]) - np.int64(tokens.drop[right])


@plain_kernel
def joined_byte(i, left, right, tokens):
    """Byte i of the merge's spelling."""
    n = np.int64(tokens.size[left])
    if i < n:
        return tokens.data[tokens.start[left] + i]
    return tokens.data[tokens.start[right] + np.int64(tokens.drop[right]) + i - n]


@plain_kernel
def add_token(new, end, left, right, tokens, prefix):
    """Make the token ``new`` of two others, its spelling at data[end:], which has room."""
    size = joined_size(left, right, tokens)
    for i in range(size):
        tokens.data[end + i] = joined_byte(i, left, right, tokens)
    tokens.start[new] = end
    tokens.size[new] = size
    tokens.length[new] = tokens.length[left] + tokens.length[right]
    set_spelling(new, tokens, prefix)


@plain_kernel
def compare_tokens(a, b, tokens):
    """-1, 0 or 1 as the spelling of token a is before, equal to or after that of b, byte by byte. The heads settle
    most comparisons."""
    if a == b:
        return 0
    if tokens.head[a] != tokens.head[b]:
        return -1 if tokens.head[a] < tokens.head[b] else 1
    i = tokens.start[a]
    j = tokens.start[b]
    n = tokens.size[a]
    m = tokens.size[b]
    for k in range(min(n, m)):
        x = tokens.data[i + k]
        y = tokens.data[j + k]
        if x != y:
            return -1 if x < y else 1
    if n == m:
        return 0
    return -1 if n < m else 1


@plain_kernel
def compare_joined(key_1, key_2, tokens):
    """As ``compare_tokens``, for the spellings that two merges would have."""
    left_1 = key_1 >> 32
    right_1 = key_1 & _LOW_32
    left_2 = key_2 >> 32
    right_2 = key_2 & _LOW_32
    n = joined_size(left_1, right_1, tokens)
    m = joined_size(left_2, right_2, tokens)
    for i in range(min(n, m)):
        x = joined_byte(i, left_1, right_1, tokens)
        y = joined_byte(i, left_2, right_2, tokens)
        if x != y:
            return -1 if x < y else 1
    if n == m:
        return 0
    return -1 if n < m else 1


@plain_kernel
def wins_tie(key_1, key_2, tie, tokens):
    """Whether the pair (or position) key_1 goes before key_2 at equal counts. A total order: pairs of equal spelling,
    which only a loop with ``unique`` off can have, go by id."""
    if tie in (TIE_ID, TIE_FIRST_SEEN) or key_1 == key_2:
        return key_1 < key_2
    if tie == TIE_SENTENCEPIECE:
        n = tokens.length[key_1 >> 32] + tokens.length[key_1 & _LOW_32]
        m = tokens.length[key_2 >> 32] + tokens.length[key_2 & _LOW_32]
        if n != m:
            return n < m
        order = compare_joined(key_1, key_2, tokens)
        if order != 0:
            return order < 0
    order = compare_tokens(key_1 >> 32, key_2 >> 32, tokens)
    if order == 0:
        order = compare_tokens(key_1 & _LOW_32, key_2 & _LOW_32, tokens)
    if order == 0:
        return key_1 < key_2
    return order > 0 if tie == TIE_LEXICOGRAPHIC_LAST else order < 0


@plain_kernel
def is_taken(left, right, tokens, taken):
    """Whether the merge's spelling is in the set."""
    wanted = tokens.hash[left] * tokens.tail_power[right] + tokens.tail_hash[right]
    size = joined_size(left, right, tokens)
    mask = len(taken) - 1
    q = np.int64((wanted * MIX_1) >> _SHIFT_32) & mask
    while taken[q] != 0:
        other = np.int64(taken[q]) - 1
        if tokens.hash[other] == wanted and tokens.size[other] == size:
            start = tokens.start[other]
            same = True
            for i in range(size):
                if tokens.data[start + i] != joined_byte(i, left, right, tokens):
                    same = False
                    break
            if same:
                return True
        q = (q + 1) & mask
    return False


@plain_kernel
def take(token, tokens, taken):
    """Enter a token's spelling into the set, which has room."""
    mask = len(taken) - 1
    q = np.int64((tokens.hash[token] * MIX_1) >> _SHIFT_32) & mask
    while taken[q] != 0:
        q = (q + 1) & mask
    taken[q] = token + 1


@plain_kernel
def take_all(first, last, tokens, taken):
    """``take`` for the ids first <= id < last."""
    for token in range(first, last):
        take(token, tokens, taken)


@plain_kernel
def obeys_rules(left, right, tokens, rules):
    """Whether the text of a merge is one that the rules allow: see ``MergeRules``."""
    size = joined_size(left, right, tokens)
    first = np.int64(tokens.drop[left])
    marker = len(rules.end_marker)
    if 0 < marker <= size:
        ends = True
        for i in range(marker):
            if joined_byte(size - marker + i, left, right, tokens) != rules.end_marker[i]:
                ends = False
                break
        if ends:
            size -= marker
    previous = ANY_SCRIPT
    letters = False
    numbers = False
    digits = 0
    white = False
    misplaced = False
    others = False
    i = first
    while i < size:
        code = np.int64(joined_byte(i, left, right, tokens))
        n = 1
        if code >= 0x80:
            if 0xC2 <= code < 0xE0:
                n = 2
                code &= 0x1F
            elif 0xE0 <= code < 0xF0:
                n = 3
                code &= 0x0F
            elif 0xF0 <= code < 0xF5:
                n = 4
                code &= 0x07
            else:  # the rest of a character that begins before the token
                i += 1
                continue
            if i + n > size:
                break
            for k in range(1, n):
                byte = np.int64(joined_byte(i + k, left, right, tokens))
                if byte & 0xC0 != 0x80:
                    n = 0
                    break
                code = code << 6 | byte & 0x3F
            if n == 0 or code >= 0x110000:
                i += 1
                continue
        if code == _LOWER_BLOCK:
            white = True
            front = i == first
            end = i + n == size
            place = rules.whitespace
            if (
                (place == _WHITESPACE_FRONT and not front)
                or (place == _WHITESPACE_END and not end)
                or (place == _WHITESPACE_FRONT_OR_INSIDE and end and not front)
                or (place == _WHITESPACE_END_OR_INSIDE and front and not end)
            ):
                misplaced = True
            i += n
            continue
        others = True
        kind = rules.kind[code]
        if kind & KIND_LETTER:
            letters = True
        if kind & KIND_NUMBER:
            numbers = True
        if kind & KIND_DIGIT:
            digits += 1
        if kind & KIND_PLAIN_DIGIT and rules.digits_alone and n < size - first:
            return False
        if rules.scripts and code != 0x20:
            script = np.int64(rules.script[code])
            if script == INHERITED_SCRIPT:
                script = previous
            if rules.digits_join and kind & KIND_PLAIN_DIGIT:
                script = ANY_SCRIPT
            if script != ANY_SCRIPT and previous != ANY_SCRIPT and script != previous:
                return False
            previous = script
        i += n
    if white and misplaced and (others or not rules.whitespace_only):
        return False
    if rules.letters_and_digits and letters and numbers:
        return False
    return rules.max_digits < 0 or digits <= rules.max_digits


@plain_kernel
def may_merge(left, right, tokens, allowed, rules):
    """Whether a merge may happen, now or later: a merge refused once is refused for good (the set only grows)."""
    if tokens.length[left] + tokens.length[right] > allowed.max_length:
        return False
    if allowed.taken_used and is_taken(left, right, tokens, allowed.taken):
        return False
    return not rules.active or obeys_rules(left, right, tokens, rules)
