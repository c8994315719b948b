"""Which patterns the window kernels can split text for."""

import hashlib

import numpy as np

from shardpiece.text import window_kernels as k
from shardpiece.text.dfa import DEAD, DFA, START

# What ``ascii_fingerprint`` gives for the published patterns.
_KINDS = {
    "2acf530f45ce1f37": k.GPT2,
    "56956b886d03254d": k.CL100K,  # llama3 too
    "a833f73e3188cd01": k.QWEN2,
    "9568436e59b714df": k.TEKKEN,
    "571c1a7dfe5a7628": k.O200K,
}


# The characters beyond ASCII that windows know, and the ASCII character that each must be like. Where case matters:
_CAPITALS = [*range(0xC0, 0xD7), *range(0xD8, 0xDF), *range(0x400, 0x430)]
_SMALL = [*range(0xDF, 0xF7), *range(0xF8, 0x100), *range(0x430, 0x460)]
_CASED = ((_CAPITALS, "B"), (_SMALL, "b"))
# Where it does not:
_LETTERS = [*_CAPITALS, *_SMALL, *range(0x100, 0x17F), *range(0x460, 0x480)]
_CASELESS = ((_LETTERS, "b"),)
_DASHES_AND_QUOTES = (([*range(0x2010, 0x2028)], "!"),)
_MARKS = (([*range(0x300, 0x370)], "!"),)


def window_kind(dfa: DFA) -> int:
    """The kernel that splits text as ``dfa`` does, or NO_WINDOWS.

    The automaton decides, not the pattern's name: an artifact keeps its own classes of characters. Windows give only
    borders that no text behind them can change, where the automaton is dead, so what it does with characters that
    windows do not know, and at the end of a text, does not matter.
    """
    kind = _KINDS.get(ascii_fingerprint(dfa), k.NO_WINDOWS)
    alike = _CASED if kind in (k.O200K, k.TEKKEN) else _CASELESS
    for characters, like in alike + _DASHES_AND_QUOTES + (_MARKS if kind == k.GPT2 else ()):
        if (dfa.class_of[characters] != dfa.class_of[ord(like)]).any():
            return k.NO_WINDOWS
    return kind


def ascii_fingerprint(dfa: DFA) -> str:
    """Equal for automata that read ASCII alike: match at the same places, and are dead after the same texts."""
    table = dfa.transitions[:, dfa.class_of[:128]].astype(np.int64)
    following, matched = table >> 1, table & 1
    block = np.ones(len(table), np.int64)
    block[DEAD] = 0
    # Merge states that no ASCII text tells apart (Moore 1956), then number them in order of first visit.
    while True:
        _, refined = np.unique(np.column_stack([block, matched, block[following]]), axis=0, return_inverse=True)
        refined = refined.reshape(-1)
        if refined.max() == block.max():
            break
        block = refined
    numbers = {int(block[DEAD]): 0}
    order = [DEAD]
    if int(block[START]) not in numbers:
        numbers[int(block[START])] = 1
        order.append(START)
    rows = []
    for state in order:
        for target in following[state].tolist():
            if int(block[target]) not in numbers:
                numbers[int(block[target])] = len(numbers)
                order.append(target)
        rows.append([numbers[int(block[target])] for target in following[state].tolist()])
    content = np.array(rows, np.int64) << 1 | matched[order]
    return hashlib.sha256(content.tobytes()).hexdigest()[:16]
