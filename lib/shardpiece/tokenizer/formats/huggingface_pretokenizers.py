"""The "pre_tokenizer" of a Hugging Face tokenizer.json as steps of a pre-tokenizer."""

import re
from dataclasses import dataclass

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text import patterns
from shardpiece.text.pretokenizers import PRETOKENIZERS, PreTokenizer
from shardpiece.text.steps import ByteAlphabetStep, ByteStep, DigitGroupsStep, MetaspaceStep, SplitStep, Step
from shardpiece.tokenizer.formats.oniguruma_read import escaped, translated

_BEHAVIORS = {
    "Isolated": "isolated",
    "Removed": "removed",
    "Contiguous": "contiguous",
    "MergedWithPrevious": "merged_with_previous",
    "MergedWithNext": "merged_with_next",
}
# As our writer spells numbers in groups from the right.
_DIGIT_GROUPS = re.compile(r"\\p\{N\}\{1,(\d+)\}\(\?=\(\?:\\p\{N\}\{\1\}\)\*\(\?!\\p\{N\}\)\)")
_CJK = f"[{patterns.CJK}]"
# BERT's own pre-tokenizer, where the normalizer has set Chinese characters apart, or has not.
BERT_PRETOKENIZER = r"\p{hf_punctuation}|[^\s\p{hf_punctuation}]+"


@dataclass(frozen=True)
class Split:
    """``before``: steps on text; ``byte_level``: whether text becomes characters of the byte alphabet then; ``after``: steps
    on these."""

    before: tuple[Step, ...]
    byte_level: bool
    after: tuple[Step, ...] = ()


def read(config: dict | None, spaced_cjk: bool = False) -> Split:
    """``spaced_cjk``: whether the normalizer puts spaces around Chinese characters, as BERT's does. Raises FormatError for
    what cannot be had exactly, KeyError or TypeError for what is damaged."""
    before: list[Step] = []
    after: list[Step] = []
    byte_level = False
    parts = _flat(config)
    for i, part in enumerate(parts):
        kind = part["type"]
        if kind == "ByteLevel":
            if byte_level:
                raise FormatError("pre_tokenizer: ByteLevel twice, which spells bytes of bytes")
            if part["add_prefix_space"]:
                before.append(MetaspaceStep(" ", "always", False))
            if part.get("use_regex", True):
                before.append(SplitStep(patterns.PATTERNS["gpt2"]))
            byte_level = True
            continue
        split_cjk = kind == "BertPreTokenizer" and i > 0 and _is_cjk_split(parts[i - 1])
        if split_cjk or (kind == "BertPreTokenizer" and spaced_cjk):
            if split_cjk:
                (after if byte_level else before).pop()
            steps = PRETOKENIZERS["bert"].make()
        else:
            steps = _steps(part)
        if byte_level and not all(isinstance(step, SplitStep) for step in steps):
            raise FormatError(f"pre_tokenizer: {kind} after ByteLevel, where text is bytes")
        (after if byte_level else before).extend(steps)
    if len(after) == 1 and after[0].pattern == patterns.CHARACTER and after[0].behavior == "isolated":
        return Split((*before, ByteStep()), True)
    return Split(tuple(before), byte_level, tuple(after))


def pretokenizer(split: Split, spelled: bool) -> PreTokenizer:
    """``spelled``: whether the model's vocabulary is texts of the byte alphabet, not bytes."""
    steps = list(split.before)
    if split.byte_level and (spelled or split.after):
        if steps and steps[-1].kind == "byte":
            steps.pop()
            steps.append(ByteAlphabetStep((SplitStep(patterns.CHARACTER),), not spelled))
        else:
            steps.append(ByteAlphabetStep(split.after, not spelled))
    if len(steps) == 1 and isinstance(steps[0], SplitStep) and steps[0].behavior == "isolated":
        for name, pattern in patterns.PATTERNS.items():
            if steps[0].pattern == pattern:
                return PreTokenizer(name)
    return PreTokenizer(steps if steps else "none")


def _flat(config: dict | None) -> list[dict]:
    if config is None:
        return []
    if config["type"] == "Sequence":
        return [part for one in config["pretokenizers"] for part in _flat(one)]
    return [config]


def _is_cjk_split(part: dict) -> bool:
    return part["type"] == "Split" and part["pattern"] == {"Regex": _CJK} and part["behavior"] == "Isolated"


def _steps(part: dict) -> list[Step]:
    match part["type"]:
        case "Split":
            return [_split(part)]
        case "Digits":
            pattern = patterns.DIGIT if part["individual_digits"] else patterns.DIGITS
            return [SplitStep(pattern, kind="digits")]
        case "Punctuation":
            behavior = _behavior(part.get("behavior", "Isolated"))
            kind = "punctuation" if behavior == "isolated" else "split"
            return [SplitStep(patterns.PUNCTUATION, behavior, kind=kind)]
        case "Whitespace":
            return PRETOKENIZERS["whitespace"].make()
        case "WhitespaceSplit":
            return PRETOKENIZERS["whitespace_split"].make()
        case "BertPreTokenizer":
            return [SplitStep(BERT_PRETOKENIZER, "removed", True)]
        case "UnicodeScripts":
            return PRETOKENIZERS["unicode_scripts"].make()
        case "CharDelimiterSplit":
            return [SplitStep(_literal(part["delimiter"]), "removed")]
        case "FixedLength":
            length = part.get("length", 5)
            if type(length) is not int or not 1 <= length <= 1000:
                raise FormatError(
                    f"pre_tokenizer FixedLength: the length {length!r:.20} is not a number from 1 to 1000"
                )
            return [SplitStep(rf"[\s\S]{{1,{length}}}")]
        case "Metaspace":
            return [_metaspace(part)]
    raise FormatError(f"pre_tokenizer: the type {part['type']!r:.60} is not known here")


def _behavior(name: str) -> str:
    if name not in _BEHAVIORS:
        raise FormatError(f"pre_tokenizer: the behavior {name!r:.40} is not known here")
    return _BEHAVIORS[name]


def _literal(text: str) -> str:
    """A pattern that matches one text."""
    if not text:
        raise FormatError("pre_tokenizer Split: an empty text, which matches everywhere")
    return "".join(map(escaped, text))


def _split(part: dict) -> Step:
    pattern, behavior, invert = part["pattern"], _behavior(part["behavior"]), part["invert"]
    if "String" in pattern:
        return SplitStep(_literal(pattern["String"]), behavior, invert)
    if (found := _DIGIT_GROUPS.fullmatch(pattern["Regex"])) and behavior == "isolated" and not invert:
        return DigitGroupsStep(SplitStep(patterns.NUMBERS), int(found[1]))
    try:
        return SplitStep(translated(pattern["Regex"]), behavior, invert)
    except FormatError as error:
        raise FormatError(f"pre_tokenizer Split: {error}") from None


def _metaspace(part: dict) -> Step:
    scheme = part.get("prepend_scheme", "always").lower()
    if part.get("add_prefix_space") is False and scheme != "never":
        raise FormatError("pre_tokenizer Metaspace: add_prefix_space is false, and prepend_scheme is not never")
    try:
        return MetaspaceStep(part["replacement"], scheme, part.get("split", True))
    except ConfigError as error:
        raise FormatError(str(error)) from None
