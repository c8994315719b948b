"""Patterns compiled to deterministic automata over classes of code points, with leftmost-first semantics.

Backtracking engines try alternatives in order and take the first that matches. A state of the automaton is therefore an
ordered list of NFA threads, cut behind the first that has matched (Cox 2010 describes the construction for RE2's
"first match" mode). Look-ahead of one character needs the next character's class, so threads are advanced one symbol late:
reading class c, a state first follows its empty moves knowing c, notes whether the best thread has matched *before* c,
and then consumes c. The end of the text is one more class.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from shardpiece.text import regex_syntax as syntax
from shardpiece.text.regex_syntax import UnsupportedPattern
from shardpiece.text.unicode_sets import CODE_POINTS

DEAD = 0
START = 1
MAX_STATES = 4096
MAX_CLASSES = 250


@dataclass(frozen=True, eq=False)
class DFA:
    """``class_of``: uint8 [0x110000], the class of each code point. ``transitions``: uint16 [states, classes + 1], the
    last column for the end of the text; entry = next state << 1 | 1 if a match ends before the character read. State 0
    is dead, state 1 the start. No match is empty."""

    class_of: np.ndarray
    transitions: np.ndarray

    @property
    def total(self) -> bool:
        """Whether some match begins at every character of every text, so that nothing stands between matches."""
        in_text = np.unique(np.delete(self.class_of, slice(0xD800, 0xE000)))  # no text has surrogates
        columns = self.transitions[:, [*in_text.tolist(), -1]]
        matched, following = columns & 1 == 1, columns >> 1
        # States that come to a match whatever follows.
        certain = np.arange(len(columns)) != DEAD
        while True:
            goes_on = certain[following]
            goes_on[:, -1] = False
            refined = certain & (matched | goes_on).all(axis=1)
            if (refined == certain).all():
                return bool(certain[following[START, :-1]].all())
            certain = refined

    def to_spec(self) -> dict:
        """As text: where each run of a class starts ("code point:class", hexadecimal), and the rows of transitions."""
        classes, transitions = self._text
        return {"classes": classes, "transitions": [*transitions]}

    @cached_property
    def _text(self) -> tuple[str, tuple[str, ...]]:
        starts = np.flatnonzero(self.class_of[1:] != self.class_of[:-1]) + 1
        starts = [0, *starts.tolist()]
        classes = self.class_of[starts].tolist()
        return (
            " ".join(f"{start:x}:{number:x}" for start, number in zip(starts, classes, strict=True)),
            tuple(" ".join(map(str, row)) for row in self.transitions.tolist()),
        )

    @classmethod
    def from_spec(cls, spec: dict) -> "DFA":
        """Raises ValueError when the tables do not fit together: kernels trust them."""
        return cls._from_text(spec["classes"], tuple(spec["transitions"]))

    @classmethod
    @lru_cache(32)
    def _from_text(cls, classes: str, rows: tuple[str, ...]) -> "DFA":
        runs = np.array([[int(part, 16) for part in run.split(":")] for run in classes.split(" ")], np.int64)
        transitions = np.array([[int(x) for x in row.split(" ")] for row in rows], np.int64)
        if runs.ndim != 2 or transitions.ndim != 2:
            raise ValueError("malformed tables of a compiled pattern")
        starts, classes = runs.T
        states, columns = transitions.shape
        if starts[0] != 0 or (np.diff(starts) <= 0).any() or starts[-1] >= CODE_POINTS:
            raise ValueError("malformed classes of a compiled pattern")
        if classes.min() < 0 or classes.max() >= min(columns - 1, MAX_CLASSES):
            raise ValueError("classes outside the tables of a compiled pattern")
        if not 2 <= states <= MAX_STATES or transitions.min() < 0 or (transitions >> 1).max() >= states:
            raise ValueError("states outside the tables of a compiled pattern")
        if (transitions[START] & 1).any():
            raise ValueError("a compiled pattern that matches nothing at all")
        class_of = np.repeat(classes.astype(np.uint8), np.diff(np.append(starts, CODE_POINTS)))
        return cls(class_of, transitions.astype(np.uint16))


@lru_cache(32)
def compile_pattern(pattern: str) -> DFA:
    """Raises UnsupportedPattern naming what the automaton cannot express."""
    nfa = _NFA(syntax.parse(pattern))
    class_of, contains = _partition(nfa.sets)
    if nfa.nullable(contains):
        raise UnsupportedPattern("a pattern that matches the empty string")
    nfa.check_possessive(contains)
    transitions = _determinize(nfa, contains)
    return DFA(class_of, _minimize(transitions))


class _NFA:
    """Thompson's construction. Instructions: ("chars", set, next), ("look", set, negative, next), ("end", next),
    ("split", [next, ...] in order of priority), ("match",)."""

    def __init__(self, node: syntax.Node):
        self.sets: list[np.ndarray] = []
        self._numbers: dict[bytes, int] = {}
        self.program: list[tuple] = [("match",)]
        self._possessive: list[tuple[int, int]] = []
        self.start = self._build(node, 0)

    def _add(self, instruction: tuple) -> int:
        self.program.append(instruction)
        if len(self.program) > 20_000:
            raise UnsupportedPattern("a pattern of this size")
        return len(self.program) - 1

    def _set(self, members: np.ndarray) -> int:
        key = np.packbits(members).tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.sets)
            self.sets.append(members)
        return self._numbers[key]

    def _build(self, node: syntax.Node, following: int) -> int:
        match node:
            case syntax.Chars():
                return self._add(("chars", self._set(node.members), following))
            case syntax.LookAhead():
                return self._add(("look", self._set(node.members), node.negative, following))
            case syntax.End():
                return self._add(("end", following))
            case syntax.Sequence():
                for part in reversed(node.parts):
                    following = self._build(part, following)
                return following
            case syntax.Choice():
                return self._add(("split", [self._build(part, following) for part in node.parts]))
            case syntax.Repeat():
                return self._repeat(node, following)
        raise AssertionError(node)

    def _repeat(self, node: syntax.Repeat, following: int) -> int:
        if _can_be_empty(node.part) and (node.high is None or node.high > 1):
            raise UnsupportedPattern("a repeat of something that may be empty")
        if node.kind == "possessive":
            if not isinstance(_unwrapped(node.part), syntax.Chars):
                raise UnsupportedPattern("a possessive repeat of more than a single character")
            self._possessive.append((self._set(_unwrapped(node.part).members), following))

        def ordered(enter: int, leave: int) -> tuple:
            return ("split", [leave, enter] if node.kind == "lazy" else [enter, leave])

        if node.high is None:
            loop = self._add(("split", []))
            self.program[loop] = ordered(self._build(node.part, loop), following)
            current = loop
        else:
            current = following
            for _ in range(node.high - node.low):
                current = self._add(ordered(self._build(node.part, current), following))
        for _ in range(node.low):
            current = self._build(node.part, current)
        return current

    def nullable(self, contains: np.ndarray) -> bool:
        """Whether a match may end where it starts, before some class or at the end."""
        return any(self.closure((self.start,), c, contains)[1] for c in range(contains.shape[1]))

    def check_possessive(self, contains: np.ndarray) -> None:
        """A possessive repeat equals a greedy one when what follows cannot begin with the repeated characters: then
        giving characters back never helps. Raises UnsupportedPattern where that is not so."""
        for repeated, following in self._possessive:
            for c in np.flatnonzero(contains[repeated]):
                seen: set[int] = set()
                stack = [following]
                while stack:
                    at = stack.pop()
                    if at in seen:
                        continue
                    seen.add(at)
                    match self.program[at]:
                        case ("chars", number, _) if contains[number, c]:
                            raise UnsupportedPattern("a possessive repeat that what follows could have matched")
                        case ("look", *_):
                            raise UnsupportedPattern("a possessive repeat before a look-ahead")
                        case ("split", targets):
                            stack.extend(targets)

    def closure(self, threads: tuple[int, ...], c: int, contains: np.ndarray) -> tuple[list[int], bool]:
        """Follow empty moves knowing that class ``c`` comes next: (threads that want a character, best first, up to
        the first match; whether there is a match)."""
        end = contains.shape[1] - 1
        out: list[int] = []
        seen: set[int] = set()
        stack = list(reversed(threads))
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            match self.program[at]:
                case ("match",):
                    return out, True
                case ("chars", *_):
                    out.append(at)
                case ("split", targets):
                    stack.extend(reversed(targets))
                case ("look", number, negative, following):
                    if bool(contains[number, c]) != negative:
                        stack.append(following)
                case ("end", following):
                    if c == end:
                        stack.append(following)
        return out, False


def _unwrapped(node: syntax.Node) -> syntax.Node:
    while isinstance(node, syntax.Sequence | syntax.Choice) and len(node.parts) == 1:
        node = node.parts[0]
    return node


def _can_be_empty(node: syntax.Node) -> bool:
    match node:
        case syntax.Chars():
            return False
        case syntax.Sequence():
            return all(map(_can_be_empty, node.parts))
        case syntax.Choice():
            return any(map(_can_be_empty, node.parts))
        case syntax.Repeat():
            return node.low == 0 or _can_be_empty(node.part)
    return True


def _partition(sets: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Code points that every set treats alike form a class: (class_of uint8 [0x110000], contains bool [sets, classes
    + 1]; no set contains the end of the text). Classes are numbered by their smallest code point."""
    changes = np.zeros(CODE_POINTS, bool)
    changes[0] = True
    for members in sets:
        changes[1:] |= members[1:] != members[:-1]
    starts = np.flatnonzero(changes)
    columns = np.array([members[starts] for members in sets]).T
    distinct, first, of_run = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    if len(distinct) > MAX_CLASSES:
        raise UnsupportedPattern(f"more than {MAX_CLASSES} classes of characters")
    rank = np.argsort(np.argsort(first))
    of_run = rank[of_run.reshape(-1)].astype(np.uint8)
    class_of = np.repeat(of_run, np.diff(np.append(starts, CODE_POINTS)))
    contains = np.zeros((len(sets), len(distinct) + 1), bool)
    contains[:, :-1] = columns[np.sort(first)].T
    return class_of, contains


def _determinize(nfa: _NFA, contains: np.ndarray) -> np.ndarray:
    columns = contains.shape[1]
    numbers: dict[tuple[int, ...], int] = {(): DEAD, (nfa.start,): START}
    order = list(numbers)
    rows: list[list[int]] = []
    while len(rows) < len(order):
        state = order[len(rows)]
        row = []
        for c in range(columns):
            threads, matched = nfa.closure(state, c, contains)
            following = tuple(dict.fromkeys(nfa.program[at][2] for at in threads if contains[nfa.program[at][1], c]))
            if following not in numbers:
                numbers[following] = len(order)
                order.append(following)
                if len(order) > MAX_STATES:
                    raise UnsupportedPattern(f"an automaton of more than {MAX_STATES} states")
            row.append(numbers[following] << 1 | matched)
        rows.append(row)
    return np.array(rows, np.int64)


def _minimize(transitions: np.ndarray) -> np.ndarray:
    """Merge states that no continuation tells apart (Moore 1956); states are numbered in order of first visit."""
    matched = transitions & 1
    following = transitions >> 1
    block = np.zeros(len(transitions), np.int64)
    count = 1
    while True:
        _, refined = np.unique(np.column_stack([block, matched, block[following]]), axis=0, return_inverse=True)
        refined = refined.reshape(-1)
        if refined.max() + 1 == count:
            break
        block, count = refined, int(refined.max()) + 1
    dead, start = block[DEAD], block[START]
    numbers = {int(dead): DEAD, int(start): START}
    if dead == start:
        raise UnsupportedPattern("a pattern that matches nothing")
    representative = {int(b): int(np.flatnonzero(block == b)[0]) for b in np.unique(block)}
    rows: list[np.ndarray] = []
    order = [int(dead), int(start)]
    while len(rows) < len(order):
        at = representative[order[len(rows)]]
        row = []
        for column in range(transitions.shape[1]):
            b = int(block[following[at, column]])
            if b not in numbers:
                numbers[b] = len(order)
                order.append(b)
            row.append(numbers[b] << 1 | int(matched[at, column]))
        rows.append(np.array(row))
    return np.array(rows, np.uint16)
