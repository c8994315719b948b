"""The text engine in the terms of Hugging Face's ``tokenizer.json``: its normalizer and its pre_tokenizer."""

import warnings

from shardpiece.errors import FormatError, ShardpieceWarning
from shardpiece.text import patterns
from shardpiece.text.engine import TextEngine
from shardpiece.text.steps import Step
from shardpiece.tokenizer.formats.huggingface_pretokenizers import BERT_PRETOKENIZER
from shardpiece.tokenizer.formats.oniguruma import spelled


def check(engine: TextEngine, byte_level: bool = True) -> None:
    """Raises FormatError for what tokenizer.json cannot say, and warns of what that library does in another way.
    ``byte_level``: whether the model is one of bytes."""
    pre_tokenizer(engine, byte_level)
    normalizer(engine, byte_level)
    if engine.normalizer is not None and engine.normalizer.spec["type"] == "sentencepiece":
        _warn_once(
            engine,
            "SentencePiece's normalization is written into tokenizer.json as transformers converts such models: Hugging Face's "
            "library applies the rules by grapheme and may differ on rare sequences of combining marks; the tokenizer.model beside it does not",
        )
    first = any(step.kind == "metaspace" and step.prepend == "first" for step in engine.pretokenizer.steps)
    if first and engine.normalizer is not None:
        _warn_once(
            engine,
            "metaspace with prepend: first looks at normalized text here; Hugging Face's library looks at where a word was "
            "before normalization, and prepends elsewhere when that adds or removes text at the beginning (prepend: always "
            "is the same in both)",
        )


def _warn_once(engine: TextEngine, message: str) -> None:
    if engine.fingerprint not in _warned:
        _warned.add(engine.fingerprint)
        warnings.warn(message, ShardpieceWarning, stacklevel=3)


_warned: set[str] = set()
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def pre_tokenizer(engine: TextEngine, byte_level: bool = True) -> dict:
    """The steps, and for byte-level models, last of all, bytes to characters."""
    steps = engine.pretokenizer.steps
    converted = [converted for step in steps for converted in _pre_tokenizer_step(step)]
    if not byte_level or any(step.kind == "byte_alphabet" for step in steps):
        return {"type": "Sequence", "pretokenizers": converted}
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
        case "byte_alphabet":
            return [_BYTE_LEVEL, *(converted for inner in step.steps for converted in _pre_tokenizer_step(inner))]
    behavior = "".join(part.capitalize() for part in step.behavior.split("_"))
    if step.pattern == patterns.PUNCTUATION and not step.invert:
        return [{"type": "Punctuation", "behavior": behavior}]
    if step.pattern == BERT_PRETOKENIZER and behavior == "Removed" and step.invert:
        return [{"type": "BertPreTokenizer"}]
    return [_split(spelled(step.pattern), behavior, step.invert)]


def normalizer(engine: TextEngine, byte_level: bool = True) -> dict | None:
    """Raises FormatError for what that library cannot do. Of SentencePiece's normalizer there is a near equal, for models that
    are written as tokenizer.model too."""
    if engine.normalizer is None:
        return None
    spec = engine.normalizer.spec
    steps = spec["steps"] if spec["type"] == "sequence" else [spec]
    if spec["type"] == "sentencepiece" and not byte_level:
        converted = _sentencepiece(spec)
    else:
        converted = [converted for step in steps for converted in _normalizer_step(step)]
    return converted[0] if len(converted) == 1 else {"type": "Sequence", "normalizers": converted}


def _sentencepiece(spec: dict) -> list[dict]:
    """What transformers makes of a normalizer_spec."""
    if spec["treat_whitespace_as_suffix"] or not spec["escape_whitespaces"] or spec["user_defined_symbols"]:
        raise FormatError(
            "tokenizer.json has no equal of SentencePiece's normalizer with treat_whitespace_as_suffix, with user-defined "
            "symbols or without escape_whitespaces"
        )
    steps = [{"type": "Precompiled", "precompiled_charsmap": spec["table"]}] if spec["table"] else []
    if spec["remove_extra_whitespaces"]:
        # Not Strip: it takes every white space, SentencePiece spaces alone, at the end also ▁ that stands in the text.
        steps += [
            _replace({"Regex": pattern}, content)
            for pattern, content in ((r"\A +", ""), (r"[ ▁]+\z", ""), (" {2,}", " "))
        ]
    if spec["add_dummy_prefix"]:
        steps.append({"type": "Prepend", "prepend": "▁"})
    return [*steps, _replace({"String": " "}, "▁")]


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
            pattern = {"Regex": spelled(step["pattern"], True)} if "pattern" in step else {"String": step["literal"]}
            return [_replace(pattern, step["content"])]
        case "charsmap" if step["reference"] == "huggingface":
            return [{"type": "Precompiled", "precompiled_charsmap": step["table"]}]
    raise FormatError(
        "a normalizer that follows SentencePiece (nmt_nfkc, nmt_nfkc_cf, nfkc_cf, sentencepiece, charsmap with reference: "
        "sentencepiece) cannot be written into tokenizer.json, whose library applies such rules in another way: set "
        "normalizer to {type: charsmap, rule: nmt_nfkc, reference: huggingface}, in a list with strip, collapse_spaces and "
        "prepend where you need them; words that were counted in style sentencepiece are trained in that style"
    )
