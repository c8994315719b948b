"""Rules that forbid merges by the text of the token they would make."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from shardpiece.errors import ConfigError
from shardpiece.text import unicode_sets
from shardpiece.training.token_kernels import (
    ANY_SCRIPT,
    INHERITED_SCRIPT,
    KIND_DIGIT,
    KIND_LETTER,
    KIND_NUMBER,
    KIND_PLAIN_DIGIT,
    RuleTables,
)

_NOTHING = np.frombuffer(b"\0", np.uint8)

WHITESPACE_PLACES = ("any", "front", "front_or_inside", "end", "end_or_inside")


@dataclass(frozen=True)
class MergeRules:
    """What a merged token's text may be; everything is allowed by default. A rule looks at the complete UTF-8 characters
    of the token: bytes of incomplete ones at the edges of byte-level tokens are ignored, and so are ``end_marker`` at
    its end and the trainer's continuing prefix at its front. The markers ▁ and the space are neutral: they belong to
    no script and are neither letter nor digit. Base symbols are never asked.

    ``separate_letters_and_digits``: no token with a letter or mark (``\\p{L}``, ``\\p{M}``) and a number (``\\p{N}``).
    ``separate_scripts``: no token of two scripts, as SentencePiece's split_by_unicode_script (Kudo and Richardson
    2018): Hiragana and Katakana count as Han, combining marks (Inherited) as what stands before them, and Common, which
    has the digits and the punctuation, is a script of its own.
    ``digits_join_any_script``: there, 0–9 and their full-width forms go with any script (split_by_number = false).
    ``max_digits``: no token with more decimal digits (``\\p{Nd}``).
    ``digits_alone``: 0–9 and their full-width forms are never part of a token (SentencePiece's split_digits).
    ``whitespace``: where ▁ may stand: "any"; "front" (SentencePiece's default); "front_or_inside", but not at the end
    (its split_by_whitespace = false); "end" and "end_or_inside" likewise for treat_whitespace_as_suffix.
    ``whitespace_only``: tokens made of ▁ alone are allowed in any case (allow_whitespace_only_pieces).
    """

    separate_letters_and_digits: bool = False
    separate_scripts: bool = False
    digits_join_any_script: bool = False
    max_digits: int | None = None
    digits_alone: bool = False
    whitespace: str = "any"
    whitespace_only: bool = False
    end_marker: bytes = b""

    def __post_init__(self) -> None:
        if self.max_digits is not None and self.max_digits < 1:
            raise ConfigError(f"max_digits must be at least 1, not {self.max_digits}")
        if self.whitespace not in WHITESPACE_PLACES:
            raise ConfigError(f"whitespace {self.whitespace!r} is not one of {', '.join(WHITESPACE_PLACES)}")

    @property
    def active(self) -> bool:
        """Whether any merge can be forbidden."""
        return (
            self.separate_letters_and_digits
            or self.separate_scripts
            or self.max_digits is not None
            or self.digits_alone
            or self.whitespace != "any"
        )

    def tables(self) -> RuleTables:
        """The rules as the kernels take them."""
        scripts, kinds = _character_tables() if self.active else (_NOTHING, _NOTHING)
        return RuleTables(
            self.active,
            scripts,
            kinds,
            np.frombuffer(self.end_marker + b"\0", np.uint8)[:-1],
            self.separate_letters_and_digits,
            self.separate_scripts,
            self.digits_join_any_script,
            -1 if self.max_digits is None else self.max_digits,
            self.digits_alone,
            WHITESPACE_PLACES.index(self.whitespace),
            self.whitespace_only,
        )


@cache
def _character_tables() -> tuple[np.ndarray, np.ndarray]:
    """Script and KIND_ bits of each code point, uint8 both. Code points that the table of scripts does not have are
    Common, as SentencePiece takes them."""
    sets = unicode_sets.scripts()
    common = next(i for i, members in enumerate(sets) if members[ord("!")])
    scripts = np.full(unicode_sets.CODE_POINTS, common + 1, np.uint8)
    for i, members in enumerate(sets):
        scripts[members] = INHERITED_SCRIPT if members[0x300] else i + 1
    scripts[ord(" ")] = ANY_SCRIPT

    kinds = np.zeros(unicode_sets.CODE_POINTS, np.uint8)
    for names, kind in (
        (("L", "M"), KIND_LETTER),
        (("N",), KIND_NUMBER),
        (("Nd",), KIND_DIGIT),
    ):
        for name in names:
            kinds[unicode_sets.members(name)] |= kind
    for zero in (ord("0"), 0xFF10):
        kinds[zero : zero + 10] |= KIND_PLAIN_DIGIT
    for table in (scripts, kinds):
        table.flags.writeable = False
    return scripts, kinds
