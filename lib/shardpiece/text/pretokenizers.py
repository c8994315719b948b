"""Pre-tokenizers: documents cut into words, the pieces that no token crosses.

A pre-tokenizer is a sequence of steps (see ``steps``), each with the tables its pattern was compiled to, classes of code
points included: one that is loaded never asks an installed library what a letter is.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
import regex

from shardpiece import storage
from shardpiece.errors import ConfigError, FormatError
from shardpiece.text import patterns as p
from shardpiece.text.documents import Documents, Words
from shardpiece.text.steps import (
    ByteStep,
    DigitGroupsStep,
    MetaspaceStep,
    SplitStep,
    Step,
    step_from_spec,
    whole_documents,
)
from shardpiece.text.unicode_sets import UNICODE_VERSION
from shardpiece.text.user_patterns import compiled, shortened

Setting = str | dict[str, Any] | list[str | dict[str, Any]]


@dataclass(frozen=True)
class Named:
    """A pre-tokenizer with a name: what makes its steps, where it comes from, and its patterns for people to read."""

    make: Callable[[], list[Step]]
    description: str
    patterns: tuple[str, ...] = ()


def _published(pattern: str, description: str) -> Named:
    return Named(lambda: [SplitStep(pattern)], description, (pattern,))


def _kept(kind: str, pattern: str, description: str, shown: str) -> Named:
    """Matches are the words, what stands between them is dropped."""
    return Named(lambda: [SplitStep(pattern, "removed", True, kind)], description, (shown,))


def _apart(kind: str, pattern: str, description: str, shown: str) -> Named:
    return Named(lambda: [SplitStep(pattern, kind=kind)], description, (shown,))


def _metaspace(prepend: str, where: str) -> Named:
    return Named(lambda: [MetaspaceStep(prepend=prepend)], f"spaces as ▁, which begins a word; put in front of {where}")


_GPT2 = p.PATTERNS["gpt2"]
PRETOKENIZERS: dict[str, Named] = {
    "gpt2": _published(_GPT2, "GPT-2; Hugging Face ByteLevel"),
    "r50k_base": _published(_GPT2, "the same by its name in tiktoken"),
    "p50k_base": _published(_GPT2, "the same by its name in tiktoken"),
    "gpt_neox": _published(_GPT2, "the same by its name at EleutherAI"),
    "cl100k_base": _published(p.PATTERNS["cl100k_base"], "GPT-3.5 and GPT-4"),
    "o200k_base": _published(p.PATTERNS["o200k_base"], "GPT-4o and later"),
    "llama3": _published(p.PATTERNS["llama3"], "Llama 3"),
    "qwen2": _published(p.PATTERNS["qwen2"], "Qwen 2 and 3: as llama3, every digit alone"),
    "tekken": _published(p.PATTERNS["tekken"], "Mistral's Tekken"),
    "deepseek_v3": Named(
        lambda: [SplitStep(pattern) for pattern in p.DEEPSEEK_V3], "DeepSeek V3 and R1", p.DEEPSEEK_V3
    ),
    "starcoder": Named(
        lambda: [SplitStep(p.DIGIT, kind="digits"), SplitStep(_GPT2)],
        "StarCoder: every digit alone, then gpt2",
        (r"\p{N}", _GPT2),
    ),
    "bert": _kept("bert", p.BERT, "BERT: punctuation and CJK characters apart, white space dropped", ""),
    "whitespace": _kept("whitespace", p.WHITESPACE, "runs of letters and runs of signs, white space dropped", p.WHITESPACE),
    "whitespace_split": _kept("whitespace_split", p.WHITESPACE_SPLIT, "what stands between white space", r"\S+"),
    "metaspace": _metaspace("always", "every text"),
    "metaspace_first": _metaspace("first", "the text that begins a document"),
    "metaspace_never": _metaspace("never", "nothing"),
    "unicode_scripts": _kept("unicode_scripts", "", "runs of one script (Hiragana and Katakana count as Han)", ""),
    "digits": _apart("digits", p.DIGIT, "every digit apart", r"\p{N}"),
    "digits_runs": _apart("digits", p.DIGITS, "every number apart", r"\p{N}+"),
    "digits_left3": _published(p.NUMBER_GROUPS, "numbers in groups of three, from the left"),
    "digits_right3": Named(
        lambda: [DigitGroupsStep(SplitStep(p.NUMBERS))], "numbers in groups of three, from the right (1 234 567)"
    ),
    "punctuation": _apart("punctuation", p.PUNCTUATION, "every punctuation character apart", r"\p{P} and ASCII's signs"),
    "word": _published(p.WORD, "words with the white space before them: nothing is dropped"),
    "character": _published(p.CHARACTER, "every code point"),
    "byte": Named(lambda: [ByteStep()], "every byte (ByT5)"),
    "none": Named(list, "whole documents"),
}  # fmt: skip
"""The named pre-tokenizers, each exactly what its reference implementation does."""


class PreTokenizer:
    """Splits documents. ``setting``: a name of PRETOKENIZERS; a regular expression, whose matches and what stands between
    them are the words; {"type": "split", "pattern": ..., "behavior": ..., "invert": ...} (see SplitStep), {"type":
    "metaspace", "replacement": ..., "prepend": ..., "split": ...} (see MetaspaceStep) or {"type": "digit_groups",
    "size": ...}; a step as it is; or a list of these, each applied to the words of the one before.

    Raises ConfigError for what is none of them.
    """

    def __init__(self, setting: Setting):
        self.name = setting if isinstance(setting, str) and setting in PRETOKENIZERS else None
        try:
            self.steps: tuple[Step, ...] = tuple(_steps(setting))
        except RecursionError:
            raise ConfigError("pretokenizer: lists in lists without end") from None
        if any(step.kind == "byte" for step in self.steps[:-1]):
            raise ConfigError("pretokenizer: after 'byte' there is nothing left to cut: it can only be the last step")
        self.unicode = UNICODE_VERSION

    @classmethod
    def from_spec(cls, spec: dict) -> "PreTokenizer":
        """The pre-tokenizer of an artifact, with the tables stored there. Raises FormatError when they are damaged."""
        self = cls.__new__(cls)
        try:
            self.name, self.unicode = spec["name"], spec["unicode"]
            self.steps = tuple(step_from_spec(step) for step in spec["steps"])
            if not isinstance(self.name, str | None) or self.unicode != UNICODE_VERSION:
                raise ValueError(f"made with sets of Unicode {self.unicode!r}")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, regex.error) as error:
            raise FormatError(f"the stored pre-tokenizer is damaged ({type(error).__name__}: {error})") from None
        return self

    @property
    def spec(self) -> dict:
        """Everything that decides the splits, as stored in artifacts."""
        return {"name": self.name, "unicode": self.unicode, "steps": [step.spec for step in self.steps]}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the steps with their tables (where the regex module splits, with that module's version)."""
        return hashlib.sha256(storage.canonical_json([step.spec for step in self.steps])).hexdigest()

    @property
    def pattern(self) -> str | None:
        """The one pattern that makes these splits; None where it takes more than that."""
        if len(self.steps) == 1 and self.steps[0].kind == "split" and self.steps[0].behavior == "isolated":
            return self.steps[0].pattern
        return None

    def __repr__(self) -> str:
        return f"PreTokenizer({self.name or self.pattern or [step.label for step in self.steps]!r})"

    def split(self, documents: Documents, at_start: np.ndarray | None = None) -> Words:
        """Cut every document. ``at_start``: bool [documents], whether each one is the beginning of a text and not a later
        part of it. Raises DocumentError for the first one on which a pattern runs too long."""
        words = whole_documents(documents, at_start)
        for step in self.steps:
            words = step.apply(words)
        return words

    def split_text(self, text: str) -> list[str]:
        """The words of one text; bytes that are no characters (as ``byte`` makes them) as \\xNN."""
        return self.split(Documents.from_strings([text])).to_texts()[0]


def _steps(setting: Setting) -> list[Step]:
    if isinstance(setting, Step):
        return [setting]
    if isinstance(setting, list | tuple):
        return [step for part in setting for step in _steps(part)]
    if isinstance(setting, dict):
        return [_step(dict(setting))]
    if not isinstance(setting, str) or not setting:
        raise ConfigError(f"pretokenizer: expected a name, a pattern, a step or a list of these, not {setting!r}")
    if setting in PRETOKENIZERS:
        return PRETOKENIZERS[setting].make()
    names = [name.strip() for name in setting.split(",")]
    if all(name in PRETOKENIZERS for name in names):
        raise ConfigError(
            f"pretokenizer {shortened(setting)}: give several as a list ([{', '.join(names)}] in a configuration, the flag "
            f"several times), one as {names[0]}"
        )
    if setting.lstrip().startswith("{type"):
        raise ConfigError(
            "pretokenizer: a step with settings goes into a configuration, or --set pretokenizer={type: ...}"
        )
    if setting.replace("_", "").replace("-", "").isalnum():
        close = get_close_matches(setting.lower(), PRETOKENIZERS, 1)
        hint = f"; did you mean {close[0]!r}?" if close else f" ({', '.join(PRETOKENIZERS)})"
        raise ConfigError(
            f"pretokenizer {shortened(setting)} is not a known name{hint} "
            f"(a regular expression of letters and digits alone can be written as (?:...))"
        )
    compiled(setting, "pretokenizer")
    return [SplitStep(setting)]


def _step(setting: dict[str, Any]) -> Step:
    kind = setting.pop("type", None)
    allowed = {
        "split": ("pattern", "behavior", "invert"),
        "metaspace": ("replacement", "prepend", "split"),
        "digit_groups": ("size",),
    }
    if not isinstance(kind, str) or kind not in allowed:
        raise ConfigError(f"pretokenizer: type {kind!r} is not one of {', '.join(allowed)}")
    unknown = [key for key in setting if key not in allowed[kind]]
    if unknown:
        raise ConfigError(f"pretokenizer {kind}: unknown key {unknown[0]!r} (known: {', '.join(allowed[kind])})")
    for key in ("invert", "split"):
        if not isinstance(setting.get(key, True), bool):
            raise ConfigError(f"pretokenizer {kind}: {key} is true or false, not {setting[key]!r}")
    if kind == "metaspace":
        return MetaspaceStep(**setting)
    if kind == "digit_groups":
        return DigitGroupsStep(SplitStep(p.NUMBERS), setting.get("size", 3))
    if not isinstance(setting.get("pattern"), str):
        raise ConfigError("pretokenizer split: a pattern is missing")
    compiled(setting["pattern"], "pretokenizer")
    return SplitStep(**setting)
