"""Hugging Face's ``tokenizer.json``, read so that we encode and decode as ``tokenizers`` does with it."""

import json

from shardpiece.errors import ConfigError, FormatError, one_line
from shardpiece.text.engine import TextEngine
from shardpiece.text.normalizers import Normalizer, normalizer
from shardpiece.tokenizer.added_tokens import AddedToken, AddedTokenCutter
from shardpiece.tokenizer.formats import (
    huggingface_decoder,
    huggingface_models,
    huggingface_pretokenizers,
    huggingface_read_models,
    huggingface_template,
)
from shardpiece.tokenizer.formats.huggingface_normalizers import huggingface_setting
from shardpiece.tokenizer.formats.rust_floats import rust_float
from shardpiece.tokenizer.tokenizer import Tokenizer

# A normalizer that takes away what a document begins with; "first" of Metaspace asks for that place.
_TAKES_THE_BEGINNING = ("strip_accents", "nmt", "bert")


def read_tokenizer_json(raw: bytes, source: str) -> Tokenizer:
    """``source``: what the file is called in errors. Truncation and padding are left out; ``provenance`` says so. Special
    tokens are never given by the model: text that spells one is the token, or other tokens. Raises FormatError naming the
    part that cannot be read exactly."""
    try:
        content = json.loads(raw, parse_float=rust_float)
        return from_content(content)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise FormatError(f"{source}: {error}") from None
        what = f"the key {error} is missing" if isinstance(error, KeyError) else one_line(error)
        raise FormatError(f"{source}: damaged, or no tokenizer.json ({what})") from None


def from_content(content: dict) -> Tokenizer:
    """The content of a tokenizer.json as a tokenizer. Raises as ``read_tokenizer_json`` does."""
    model_config = content["model"]
    texts = huggingface_read_models.vocabulary(model_config)
    steps, spelled_normalizer = _normalizer_steps(content.get("normalizer"))
    rule = normalizer(steps)
    split = huggingface_pretokenizers.read(content.get("pre_tokenizer"), _spaces_cjk(rule))
    if spelled_normalizer:
        if split.byte_level or any(not hasattr(step, "pattern") for step in split.before):
            raise FormatError("the normalizer ByteLevel goes with splits alone, and not with the pre_tokenizer here")
        split = huggingface_pretokenizers.Split((), True, split.before)
    _check_first(rule, split)
    byte_level = split.byte_level and huggingface_read_models.spells_bytes(model_config, texts)
    tokens = _added_tokens(content.get("added_tokens") or [], texts, spelled_normalizer)
    AddedTokenCutter(tokens, rule)  # raises for those that cannot be found
    model = huggingface_read_models.read(
        model_config,
        texts,
        byte_level,
        {token.text for token in tokens if token.special},
        {token.text for token in tokens},
    )
    engine = TextEngine(huggingface_pretokenizers.pretokenizer(split, split.byte_level and not byte_level), rule)
    provenance = {"left_out": [key for key in ("truncation", "padding") if content.get(key) is not None]}
    return Tokenizer(
        engine,
        model,
        provenance=provenance if provenance["left_out"] else {},
        added_tokens=tokens,
        decoder=huggingface_decoder.read(content.get("decoder")),
        template=huggingface_template.read(content.get("post_processor")),
    )


def _normalizer_steps(config: dict | None) -> tuple[list, bool]:
    """(settings, whether the last step is ByteLevel)."""
    parts = _flat(config)
    byte_level = bool(parts) and parts[-1].get("type") == "ByteLevel"
    return huggingface_setting({"type": "Sequence", "normalizers": parts[:-1] if byte_level else parts}), byte_level


def _flat(config: dict | None) -> list[dict]:
    if config is None:
        return []
    if config.get("type") == "Sequence":
        return [part for one in config["normalizers"] for part in _flat(one)]
    return [config]


def _rule_steps(rule: Normalizer | None) -> list[dict]:
    if rule is None:
        return []
    return rule.spec["steps"] if rule.spec["type"] == "sequence" else [rule.spec]


def _spaces_cjk(rule: Normalizer | None) -> bool:
    steps = _rule_steps(rule)
    return bool(steps) and steps[-1]["type"] == "bert" and steps[-1]["handle_chinese_chars"]


def _check_first(rule: Normalizer | None, split: huggingface_pretokenizers.Split) -> None:
    """That library prepends "first" where what is left of a document begins where the document did."""
    if not any(getattr(step, "prepend", "") == "first" for step in split.before):
        return
    for step in _rule_steps(rule):
        kind = step["type"]
        if kind in _TAKES_THE_BEGINNING or (kind == "strip" and step["left"]) or step.get("content") == "":
            raise FormatError(
                f"pre_tokenizer Metaspace with prepend_scheme first, behind the normalizer {kind}, which may take away what "
                f"a text begins with: where that library then prepends depends on what was there"
            )


def _added_tokens(entries: list[dict], texts: list[str | None], spelled: bool) -> list[AddedToken]:
    """Raises FormatError where the file says another id than that library gives."""
    entries = [entry for entry in entries if entry["content"] != ""]
    names = [entry["content"] for entry in entries]
    if len(set(names)) != len(names):
        raise FormatError(f"added_tokens: {max(names, key=names.count)!r:.60} is listed twice")
    ids = huggingface_models.given_ids(names, {text: i for i, text in enumerate(texts) if text is not None})
    tokens = []
    for entry, text, new in zip(entries, names, ids, strict=True):
        if entry["id"] != new:
            raise FormatError(
                f"added_tokens: {text!r:.60} has the id {entry['id']}, and Hugging Face's library gives it {new}, whatever "
                f"the file says"
            )
        normalized = entry["normalized"]
        if spelled and normalized and entry["single_word"]:
            raise FormatError(f"added_tokens: {text!r:.60} is a single word of text that ByteLevel has normalized")
        strips = not (spelled and normalized)  # there is no white space in the byte alphabet
        lstrip, rstrip = entry["lstrip"] and strips, entry["rstrip"] and strips
        tokens.append(AddedToken(text, new, entry["special"], lstrip, rstrip, entry["single_word"], normalized))
    return tokens
