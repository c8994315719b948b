"""A parser for the regular expressions of published pre-tokenizers.

The language: literals and escapes, ``.``, classes, ``\\s \\d \\w \\p{..}`` and their complements, groups (what they capture
is ignored), alternation, greedy, lazy and possessive repeats, ``(?i:..)`` and ``(?s:..)``, look-ahead of one
character (``(?=..)``, ``(?!..)``), and the end of the text (``\\z``, ``\\Z``). Anything else raises
UnsupportedPattern, which names the construct: such patterns are left to the ``regex`` module.
"""

import re
from dataclasses import dataclass

import numpy as np
import regex

from shardpiece.text import unicode_sets


class UnsupportedPattern(ValueError):
    """A construct outside the language; the message names it."""


@dataclass(frozen=True, eq=False)
class Chars:
    """One character of a set (bool array over code points)."""

    members: np.ndarray


@dataclass(frozen=True, eq=False)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True, eq=False)
class Choice:
    """Alternatives, the first that leads to a match wins."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """From ``low`` to ``high`` times (None: without limit); ``kind`` is "greedy", "lazy" or "possessive"."""

    part: "Node"
    low: int
    high: int | None
    kind: str


@dataclass(frozen=True, eq=False)
class LookAhead:
    """The next character is of the set (or, if ``negative``, is not: then the end of the text fits too)."""

    members: np.ndarray
    negative: bool


@dataclass(frozen=True, eq=False)
class End:
    """The end of the text."""


Node = Chars | Sequence | Choice | Repeat | LookAhead | End

MAX_REPEAT = 64
MAX_SETS = 300
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_SHORTHANDS = {"s": "space", "d": "Nd", "w": "word"}
_QUANTIFIER = re.compile(r"\{(\d*)(,?)(\d*)\}")
_INLINE_FLAGS = re.compile(r"\(\?([is]*)(-([is]+))?([:)])")


def parse(pattern: str) -> Node:
    """Raises UnsupportedPattern; ``pattern`` must be one that ``regex`` compiles."""
    parser = _Parser(pattern)
    node = parser.choice(frozenset())
    if parser.at < len(pattern):
        raise UnsupportedPattern(f"{pattern[parser.at]!r} at {parser.at}")
    return node


class _Parser:
    def __init__(self, pattern: str):
        self.pattern = pattern
        self.at = 0
        self.sets: dict[tuple[str, frozenset[str]], Chars] = {}

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    def choice(self, flags: frozenset[str]) -> Node:
        parts = [self.sequence(flags)]
        while self.take("|"):
            parts.append(self.sequence(flags))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def sequence(self, flags: frozenset[str]) -> Node:
        parts: list[Node] = []
        while self.at < len(self.pattern) and not self.peek("|") and not self.peek(")"):
            inline = _INLINE_FLAGS.match(self.pattern, self.at)
            if inline and inline[4] == ")":
                # (?i) holds for the whole pattern in regex, so it can only stand at the front.
                if self.at > 0:
                    raise UnsupportedPattern(f"flags {inline[0]} inside a pattern")
                self.at = inline.end()
                return Sequence((self.choice((flags | set(inline[1])) - set(inline[3] or "")),))
            parts.append(self.repeated(self.atom(flags)))
        return Sequence(tuple(parts))

    def repeated(self, node: Node) -> Node:
        while True:
            if self.take("*"):
                low, high = 0, None
            elif self.take("+"):
                low, high = 1, None
            elif self.take("?"):
                low, high = 0, 1
            elif (found := _QUANTIFIER.match(self.pattern, self.at)) and (found[1] or found[3]):
                self.at = found.end()
                low = int(found[1] or 0)
                high = (int(found[3]) if found[3] else None) if found[2] else low
            else:
                return node
            if isinstance(node, LookAhead | End):
                raise UnsupportedPattern("a repeated assertion")
            if max(low, high or 0) > MAX_REPEAT:
                raise UnsupportedPattern(f"a repeat of more than {MAX_REPEAT} times")
            kind = "possessive" if self.take("+") else "lazy" if self.take("?") else "greedy"
            node = Repeat(node, low, high, kind)

    def atom(self, flags: frozenset[str]) -> Node:
        start = self.at
        if self.take("("):
            return self.group(flags, start)
        # The same text means the same set, which is made once: it has a byte for every code point.
        if (known := self.sets.get((self.pattern[start], flags))) is not None:
            self.at += 1
            return known
        node = self.single(flags)
        if not isinstance(node, Chars):
            return node
        key = self.pattern[start : self.at], flags
        known = self.sets.setdefault(key, node)
        if len(self.sets) > MAX_SETS:
            raise UnsupportedPattern(f"more than {MAX_SETS} different characters and classes")
        return known

    def single(self, flags: frozenset[str]) -> Node:
        """One character, a set of characters, or the end of the text."""
        start = self.at
        if self.take("["):
            return Chars(self.char_class(flags, start))
        if self.take("."):
            return Chars(unicode_sets.complement(unicode_sets.from_code_points([] if "s" in flags else [ord("\n")])))
        if self.pattern[self.at] in "^$":
            raise UnsupportedPattern(f"anchor {self.pattern[self.at]}")
        if self.take("\\"):
            if self.take("z") or self.take("Z"):
                return End()
            return Chars(self.escape(start, flags))
        character = self.pattern[self.at]
        if character == "{":
            raise UnsupportedPattern("an unescaped { (regex reads some as fuzzy matching)")
        if character in "*+?":
            raise UnsupportedPattern(f"a quantifier with nothing before it ({character})")
        self.at += 1
        return Chars(self.literal(character, flags))

    def group(self, flags: frozenset[str], start: int) -> Node:
        inline = _INLINE_FLAGS.match(self.pattern, start)
        if inline and inline[4] == ":":
            self.at = inline.end()
            inner = self.choice((flags | set(inline[1])) - set(inline[3] or ""))
        elif self.peek("?=") or self.peek("?!"):
            negative = self.peek("?!")
            self.at += 2
            inner = LookAhead(_single(self.choice(flags)), negative)
        elif named := re.compile(r"\?P?<[A-Za-z_]\w*>").match(self.pattern, self.at):
            self.at = named.end()
            inner = self.choice(flags)
        elif self.peek("?") or self.peek("*"):
            raise UnsupportedPattern(f"group {self.pattern[start : start + 4]}")
        else:
            inner = self.choice(flags)
        if not self.take(")"):
            raise UnsupportedPattern(f"group without end at {start}")
        return inner

    def literal(self, character: str, flags: frozenset[str]) -> np.ndarray:
        exact = unicode_sets.from_code_points([ord(character)])
        return unicode_sets.caseless(regex.escape(character), exact) if "i" in flags else exact

    def escape(self, start: int, flags: frozenset[str]) -> np.ndarray:
        """The set of what stands after a backslash."""
        found = self.escaped(start, flags)
        return self.literal(found, flags) if isinstance(found, str) else found

    def escaped(self, start: int, flags: frozenset[str]) -> str | np.ndarray:
        """What stands after a backslash: a character, or the set of a shorthand or property."""
        letter = self.pattern[self.at]
        self.at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter.lower() in _SHORTHANDS:
            members = unicode_sets.frozen(_SHORTHANDS[letter.lower()])
            return unicode_sets.complement(members) if letter.isupper() else members
        if letter in "pP":
            return self.property(start, letter == "P", flags)
        for prefix, digits in (("x", 2), ("u", 4), ("U", 8)):
            if letter == prefix:
                text = self.pattern[self.at : self.at + digits]
                if not re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", text):
                    raise UnsupportedPattern(f"escape \\{letter}{text}")
                self.at += digits
                return chr(int(text, 16))
        if letter.isalnum():
            raise UnsupportedPattern(f"escape \\{letter}")
        return letter

    def property(self, start: int, negative: bool, flags: frozenset[str]) -> np.ndarray:
        end = self.pattern.find("}", self.at)
        if not self.peek("{") or end < 0:
            raise UnsupportedPattern(f"property {self.pattern[start : start + 4]}")
        name = self.pattern[self.at + 1 : end]
        self.at = end + 1
        members = unicode_sets.members(name.removeprefix("^"))
        if negative != name.startswith("^"):
            members = unicode_sets.complement(members)
        # There regex takes \p{Lu} for any letter with a case.
        return unicode_sets.caseless(self.pattern[start : self.at], members) if "i" in flags else members

    def char_class(self, flags: frozenset[str], start: int) -> np.ndarray:
        """A class in brackets, whose first one is behind us."""
        negative = self.take("^")
        members = unicode_sets.empty()
        first = True
        while first or not self.peek("]"):
            item = self.class_item(start)
            first = False
            if not isinstance(item, str):
                members |= item
            elif self.peek("-") and not self.peek("-]"):
                self.at += 1
                last = self.class_item(start)
                if not isinstance(last, str) or last < item:
                    raise UnsupportedPattern(f"range in the class {self.pattern[start : start + 12]}")
                members |= unicode_sets.from_range(ord(item), ord(last))
            else:
                members[ord(item)] = True
        self.at += 1
        if negative:
            members = unicode_sets.complement(members)
        return unicode_sets.caseless(self.pattern[start : self.at], members) if "i" in flags else members

    def class_item(self, start: int) -> str | np.ndarray:
        if self.at >= len(self.pattern) or any(map(self.peek, ("[", "&&", "--", "||", "~~"))):
            raise UnsupportedPattern(f"class {self.pattern[start : start + 12]}")
        if self.take("\\"):
            return self.escaped(self.at - 1, frozenset())
        self.at += 1
        return self.pattern[self.at - 1]


def _single(node: Node) -> np.ndarray:
    """The set of a look-ahead's only character."""
    if isinstance(node, Chars):
        return node.members
    if isinstance(node, Sequence) and len(node.parts) == 1:
        return _single(node.parts[0])
    if isinstance(node, Choice):
        return np.logical_or.reduce([_single(part) for part in node.parts])
    raise UnsupportedPattern("look-ahead of other than one character")
