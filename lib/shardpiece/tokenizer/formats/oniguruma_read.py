r"""Oniguruma's patterns, as they stand in ``tokenizer.json``, in the syntax of our parser and of the ``regex`` module.

What means the same stays as it is written. What does not is written anew: ``\w`` (without the joiners, and outside of
classes with six superscripts and fractions), ``^`` and ``$`` (always of lines), ``\Z``, ``(?m)`` (the dot that matches line
ends), ``{1,3}+`` (a repeat of a repeat), ``{n}?`` (an optional one), escapes. What has no equal is refused by name. Compared
with the library on every code point: its general categories, scripts and POSIX names are those of the frozen sets.
"""

import re
from functools import lru_cache

import regex

from shardpiece.errors import FormatError
from shardpiece.text import regex_syntax
from shardpiece.text.regex_syntax import UnsupportedPattern

# Names whose sets are another there than in the frozen tables or in regex.
_OTHER_PROPERTIES = {
    "lower", "lowercase", "xdigit", "extendedpictographic", "any", "word", "diacritic", "defaultignorablecodepoint", "cased",
    "noncharactercodepoint",
}  # fmt: skip
_PROPERTY = re.compile(r"\\[pP]\{(\^?)([A-Za-z][A-Za-z_ \-]*)\}")
_INTERVAL = re.compile(r"\{(?:(\d+)(?:(,)(\d*))?|(,)(\d+))\}")
_OPTIONS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_NAMED = re.compile(r"\(\?<[A-Za-z_]\w*>")
_SAME_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>")
_CONTROLS = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# Letters that fold to one character when they stand together, where case is ignored.
_LIGATURES = ("ss", "ff", "fi", "fl", "st")
_CODES = (("x", r"\{([0-9A-Fa-f]{1,8})\}"), ("x", r"([0-9A-Fa-f]{1,2})"), ("u", r"([0-9A-Fa-f]{4})"))
# Characters of words, and others: outside of a class, where six of Latin-1 are among them, and in one. regex does not know
# our sets.
_FOR_US = ((r"\p{hf_word}", r"\P{hf_word}"), (r"\p{hf_class_word}", r"\P{hf_class_word}"))
FOR_REGEX = (
    ("[\\w\xb2\xb3\xb9\xbc-\xbe--\u200c\u200d]", "[[^\\w\xb2\xb3\xb9\xbc-\xbe]\u200c\u200d]"),
    ("[\\w--\u200c\u200d]", "[\\W\u200c\u200d]"),
)


@lru_cache(256)
def translated(pattern: str, for_regex: bool = False) -> str:
    """The pattern for our parser, else, or with ``for_regex``, for the ``regex`` module. Raises FormatError naming what has
    no equal."""
    text = _Reader(pattern, _FOR_US).whole()
    try:
        regex_syntax.parse(text)
        if not for_regex or "{hf_" not in text:
            return text
    except UnsupportedPattern:
        pass
    text = _Reader(pattern, FOR_REGEX).whole()
    if "--\u200c" in text or "]\u200c" in text or "W\u200c" in text:
        text = f"(?V1){text}"
    try:
        regex.compile(text)
    except (regex.error, RecursionError, OverflowError) as error:
        raise FormatError(f"the pattern {_short(pattern)} cannot be read: {error}") from None
    return text


def _short(pattern: str) -> str:
    return pattern if len(pattern) <= 80 else f"{pattern[:77]}..."


class _Reader:
    """``words``: what \\w and \\W become outside of classes, and inside."""

    def __init__(self, pattern: str, words: tuple[tuple[str, str], tuple[str, str]]):
        self.pattern, self.at = pattern, 0
        self.words = words

    def refuse(self, what: str) -> FormatError:
        return FormatError(f"the pattern {_short(self.pattern)} has {what}, which has no equal here or another meaning")

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    def whole(self) -> str:
        text = self.choice(False)
        if self.at < len(self.pattern):
            raise self.refuse("a ) without (")
        return text

    def choice(self, caseless: bool) -> str:
        """Alternatives, up to the end of the group."""
        parts = [self.sequence(caseless)]
        while self.take("|"):
            parts.append(self.sequence(caseless))
        return "|".join(parts)

    def sequence(self, caseless: bool) -> str:
        parts: list[str] = []
        before = ""  # the literal letter before, where case is ignored
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            start = self.at
            options = _OPTIONS.match(self.pattern, start) if self.peek("(?") else None
            if options and options[3] == ")":
                # Holds to the end of the group, alternatives included.
                self.at = options.end()
                inner, sign = self.option(options, caseless)
                parts.append(f"{sign}{self.choice(inner)})")
                break
            atom = self.atom(caseless)
            letter = atom.lower() if caseless and len(atom) == 1 else "i" if atom == "(?-i:[iI])" else ""
            if before + letter in _LIGATURES:
                raise self.refuse(f"{before}{letter} without regard to case (there it matches a ligature)")
            before = letter
            parts.append(self.repeated(atom))
        return "".join(parts)

    def repeated(self, atom: str) -> str:
        found = _INTERVAL.match(self.pattern, self.at)
        if found:
            self.at = found.end()
            low, high = int(found[1] or 0), found[5] if found[4] else (found[3] if found[2] else found[1])
            if high and int(high) < low:
                raise self.refuse(f"the interval {found[0]}")
            text = atom + found[0]
            exact = found[1] is not None and not found[2]
            if self.take("?"):
                text = f"(?:{text})?" if exact else text + "?"
            elif self.pattern[self.at : self.at + 1] in ("+", "*"):
                text = f"(?:{text}){self.pattern[self.at]}"
                self.at += 1
        elif self.pattern[self.at : self.at + 1] in ("*", "+", "?"):
            text = atom + self.pattern[self.at]
            self.at += 1
            if self.pattern[self.at : self.at + 1] in ("+", "?"):
                text += self.pattern[self.at]
                self.at += 1
        else:
            return atom
        if self.pattern[self.at : self.at + 1] in ("*", "+", "?") or _INTERVAL.match(self.pattern, self.at):
            raise self.refuse("a repeat of a repeat")
        if not atom:
            raise self.refuse("a repeated comment")
        return text

    def atom(self, caseless: bool) -> str:
        c = self.pattern[self.at]
        if c == "(":
            return self.group(caseless)
        if c == "[":
            return self.char_class(caseless)
        if c == "\\":
            return self.escape(caseless, inside=False)
        self.at += 1
        if c in "*+?":
            raise self.refuse(f"a quantifier with nothing before it ({c})")
        if c == "^":
            return r"(?:(?<![\s\S])|(?<=\n)(?=[\s\S]))"
        if c == "$":
            return r"(?=\n|\z)"
        if c == ".":
            return c
        return self.literal(c, caseless)

    def literal(self, c: str, caseless: bool) -> str:
        if caseless and not (c.isascii() or c.lower() == c.upper() == c.casefold() == c):
            raise self.refuse(f"{c!r} without regard to case")
        return "(?-i:[iI])" if caseless and c in "iI" else escaped(c)

    def option(self, found: re.Match, caseless: bool) -> tuple[bool, str]:
        """(whether case is ignored inside, how the group begins)."""
        on, off = found[1], found[2] or ""
        if set(on + off) - set("im"):
            raise self.refuse(f"the option {found[0]}")
        caseless = "i" in on or (caseless and "i" not in off)
        ours = f"{on}-{off}".replace("m", "s").removesuffix("-")
        return caseless, f"(?{ours}:"

    def group(self, caseless: bool) -> str:
        if self.take("(?#"):
            end = self.pattern.find(")", self.at)
            self.at = end + 1
            return ""
        options = _OPTIONS.match(self.pattern, self.at)
        named = _NAMED.match(self.pattern, self.at)
        if options:
            self.at = options.end()
            caseless, sign = self.option(options, caseless)
        elif named:
            self.at, sign = named.end(), "(?:"
        else:
            sign = next((sign for sign in _SAME_GROUPS if self.peek(sign)), "(")
            if sign == "(" and (self.peek("(?") or self.peek("(*")):
                raise self.refuse(f"the group {self.pattern[self.at : self.at + 4]}")
            self.at += len(sign)
        inner = self.choice(caseless)
        if not self.take(")"):
            raise self.refuse("a group without end")
        return f"{sign}{inner})"

    def escape(self, caseless: bool, inside: bool) -> str:
        """What stands after a backslash; ``inside`` a class."""
        if found := _PROPERTY.match(self.pattern, self.at):
            self.at = found.end()
            name = found[2].replace("_", "").replace(" ", "").replace("-", "").lower()
            if name in _OTHER_PROPERTIES or name[:2] in ("is", "in", "hf"):
                raise self.refuse(f"the property {found[0]}")
            if caseless and found[2] not in ("N", "Nd", "Nl", "P", "S", "Z"):
                raise self.refuse(f"the property {found[0]} without regard to case")
            return found[0]
        letter = self.pattern[self.at + 1 : self.at + 2]
        self.at += 2
        if letter in ("w", "W") and letter:
            return self.words[inside][letter == "W"]
        if letter and letter in "sSdD":
            return f"\\{letter}"
        if letter in ("h", "H") and letter:
            if inside and letter == "H":
                raise self.refuse(r"\H in a class")
            digits = "0-9A-Fa-f"
            return digits if inside else f"[{'^' if letter == 'H' else ''}{digits}]"
        if not inside and letter in ("A", "z", "Z", "R", "N", "O") and letter:
            return {
                "A": r"(?<![\s\S])",
                "z": r"\z",
                "Z": r"(?=\n?\z)",
                "R": "(?>\\r\\n|[\\n\\v\\f\\r\x85\u2028\u2029])",
                "N": r"[^\n]",
                "O": r"[\s\S]",
            }[letter]
        if not inside and letter in ("b", "B") and letter:
            w = self.words[0][0]
            one = f"(?<={w})(?!{w})|(?<!{w})(?={w})" if letter == "b" else f"(?<={w})(?={w})|(?<!{w})(?!{w})"
            return f"(?:{one})"
        plain = not letter.isalnum() and letter.isascii() and letter.isprintable()
        text = self.character(self.code(letter), caseless, inside)
        return f"\\{letter}" if plain and letter not in "<>" else text

    def code(self, letter: str) -> str:
        """The character that an escape stands for."""
        if letter in _CONTROLS and letter:
            return _CONTROLS[letter]
        for opening, pattern in _CODES:
            if letter == opening and (found := re.compile(pattern).match(self.pattern, self.at)):
                code = int(found[1], 16)
                if (
                    code > 0x10FFFF
                    or 0xD800 <= code < 0xE000
                    or (code > 0x7F and "{" not in found[0] and letter == "x")
                ):
                    raise self.refuse(f"the escape \\{letter}{found[0]}")
                self.at = found.end()
                return chr(code)
        if not letter or letter.isalnum():
            raise self.refuse(f"the escape \\{letter}")
        return letter

    def character(self, c: str, caseless: bool, inside: bool) -> str:
        named = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f", "\v": r"\v", "\a": r"\a"}
        if c in named:
            return named[c]
        if caseless and not (c.isascii() or c.lower() == c.upper() == c.casefold() == c):
            raise self.refuse(f"{c!r} without regard to case")
        if inside:
            return f"\\{c}" if c in "[]-^\\&~|" else c
        return escaped(c)

    def char_class(self, caseless: bool) -> str:
        start = self.at
        self.at += 1
        opening = "[^" if self.take("^") else "["
        items = self.class_items(caseless, start)
        if not caseless:
            return f"{opening}{items}]"
        plain = re.sub(r"\\[pP]\{[^}]*\}|\\[sSdD]", "", items)
        members = [chr(c) for c in range(128) if plain and regex.match(f"[{plain}]", chr(c))]
        if not {"i", "I"} & {*members}:
            return f"{opening}{items}]"
        if plain != items or not plain.isascii():
            raise self.refuse("a class with an i and more without regard to case")
        # There, unlike for regex, neither of the Turkish letters is an i.
        cases = {case for c in members for case in (c, c.swapcase(), {"s": "\u017f", "k": "\u212a"}.get(c.lower(), c))}
        shown = "".join(f"\\{c}" if c in "[]-^\\&~|" else c for c in sorted(cases))
        return f"(?-i:{opening}{shown}])"

    def class_items(self, caseless: bool, start: int) -> str:
        """What a class holds, up to its end; classes inside are written out."""
        parts: list[str] = []
        last = ""  # the character before, where a range may begin
        while True:
            if self.at >= len(self.pattern):
                raise self.refuse("a class without end")
            if self.peek("]") and parts:
                self.at += 1
                return "".join(parts)
            if self.peek("&&") or self.peek("[^") or self.peek("[:"):
                raise self.refuse(f"the class {self.pattern[start : start + 12]}, a class of classes")
            if self.take("["):
                parts.append(self.class_items(caseless, start))
                last = ""
                continue
            if last and self.peek("-") and not self.peek("-]"):
                self.at += 1
                item = self.class_item(caseless)
                if _is_set(item):
                    raise self.refuse("a range that ends with a set")
                if caseless and not (item[-1].isascii() and last[-1].isascii()):
                    raise self.refuse("a range beyond ASCII without regard to case")
                parts.append(f"-{item}")
                last = ""
                continue
            item = self.class_item(caseless)
            if _is_set(item) and self.peek("-") and not self.peek("-]"):
                raise self.refuse("a range that begins with a set")
            last = "" if _is_set(item) else item
            parts.append(item)

    def class_item(self, caseless: bool) -> str:
        c = self.pattern[self.at]
        if c == "\\":
            return self.escape(caseless, inside=True)
        self.at += 1
        if caseless and not (c.isascii() or c.lower() == c.upper() == c.casefold() == c):
            raise self.refuse(f"{c!r} without regard to case")
        # Twice is an operator to us.
        return f"\\{c}" if c in "[]-" or (c in "&~|" and self.pattern[self.at - 2 : self.at] == c + c) else c


def escaped(c: str) -> str:
    """A character as a pattern that matches it."""
    return f"\\{c}" if c in r"\{}[]().*+?^$|" else c


def _is_set(item: str) -> bool:
    """Whether a part of a class is more than one character."""
    return len(item) > 1 and (item[0] != "\\" or item[1] in "sSdDpP")
