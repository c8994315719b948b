"""The text engine in the terms of Hugging Face's ``tokenizer.json``: its normalizer and its pre_tokenizer."""

import warnings

from shardpiece.errors import FormatError, ShardpieceWarning
from shardpiece.text import patterns
from shardpiece.text.engine import TextEngine
from shardpiece.text.steps import Step
from shardpiece.tokenizer.formats.oniguruma import spelled


def check(engine: TextEngine) -> None:
    """Raises FormatError for what tokenizer.json cannot say, and warns of what that library does in another way."""
    pre_tokenizer(engine)
    normalizer(engine)
    first = any(step.kind == "metaspace" and step.prepend == "first" for step in engine.pretokenizer.steps)
    if first and engine.normalizer is not None and engine.fingerprint not in _warned:
        _warned.add(engine.fingerprint)
        warnings.warn(
            "metaspace with prepend: first looks at normalized text here; Hugging Face's library looks at where a word was "
            "before normalization, and prepends elsewhere when that adds or removes text at the beginning (prepend: always "
            "is the same in both)",
            ShardpieceWarning,
            stacklevel=2,
        )


_warned: set[str] = set()
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def pre_tokenizer(engine: TextEngine) -> dict:
    """The steps, and last of all bytes to characters."""
    steps = engine.pretokenizer.steps
    converted = [converted for step in steps for converted in _pre_tokenizer_step(step)]
    # Only after bytes have become characters can that library split between them.
    after = [_split(patterns.CHARACTER)] if any(step.kind == "byte" for step in steps) else []
    return {"type": "Sequence", "pretokenizers": [*converted, _BYTE_LEVEL, *after]}


def _split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> dict:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def _pre_tokenizer_step(step: Step) -> list[dict]:
    match step.kind:
        case "metaspace":
            return [
                {
                    "type": "Metaspace",
                    "replacement": step.replacement,
                    "prepend_scheme": step.prepend,
                    "split": step.split,
                }
            ]
        case "digit_groups":
            # Looks ahead over the whole number at every group: that library has no other means.
            return [_split(rf"\p{{N}}{{1,{step.size}}}(?=(?:\p{{N}}{{{step.size}}})*(?!\p{{N}}))")]
        case "bert":
            return [_split(f"[{patterns.CJK}]"), {"type": "BertPreTokenizer"}]
        case "whitespace":
            return [{"type": "Whitespace"}]
        case "whitespace_split":
            return [{"type": "WhitespaceSplit"}]
        case "unicode_scripts":
            return [{"type": "UnicodeScripts"}]
        case "punctuation":
            return [{"type": "Punctuation", "behavior": "Isolated"}]
        case "digits":
            return [{"type": "Digits", "individual_digits": step.pattern == patterns.DIGIT}]
        case "byte":
            return []
    behavior = "".join(part.capitalize() for part in step.behavior.split("_"))
    return [_split(spelled(step.pattern), behavior, step.invert)]


def normalizer(engine: TextEngine) -> dict | None:
    """Raises FormatError for what that library cannot do."""
    if engine.normalizer is None:
        return None
    spec = engine.normalizer.spec
    steps = spec["steps"] if spec["type"] == "sequence" else [spec]
    converted = [converted for step in steps for converted in _normalizer_step(step)]
    return converted[0] if len(converted) == 1 else {"type": "Sequence", "normalizers": converted}


def _replace(pattern: dict, content: str) -> dict:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _normalizer_step(step: dict) -> list[dict]:
    match step["type"]:
        case "nfc" | "nfd" | "nfkc" | "nfkd":
            return [{"type": step["type"].upper()}]
        case "lowercase":
            return [{"type": "Lowercase"}]
        case "strip_accents":
            return [{"type": "StripAccents"}]
        case "nmt":
            return [{"type": "Nmt"}]
        case "bert":
            settings = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
            return [{"type": "BertNormalizer", **{key: step[key] for key in settings}}]
        case "strip":
            return [{"type": "Strip", "strip_left": step["left"], "strip_right": step["right"]}]
        case "collapse_spaces":
            return [_replace({"Regex": " {2,}"}, " ")]
        case "prepend":
            return [{"type": "Prepend", "prepend": step["text"]}]
        case "replace":
            pattern = {"Regex": spelled(step["pattern"])} if "pattern" in step else {"String": step["literal"]}
            return [_replace(pattern, step["content"])]
        case "charsmap" if step["reference"] == "huggingface":
            return [{"type": "Precompiled", "precompiled_charsmap": step["table"]}]
    raise FormatError(
        "a normalizer that follows SentencePiece (nmt_nfkc, nmt_nfkc_cf, nfkc_cf, sentencepiece, charsmap with reference: "
        "sentencepiece) cannot be written into tokenizer.json, whose library applies such rules in another way: set "
        "normalizer to {type: charsmap, rule: nmt_nfkc, reference: huggingface}, in a list with strip, collapse_spaces and "
        "prepend where you need them"
    )
