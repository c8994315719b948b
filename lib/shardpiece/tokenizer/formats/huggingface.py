"""Hugging Face ``tokenizer.json``, written so that ``tokenizers`` and ``transformers`` encode as we do."""

import json

from shardpiece.errors import FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.added_tokens import AddedToken
from shardpiece.tokenizer.formats import huggingface_decoder, huggingface_template, huggingface_text
from shardpiece.tokenizer.formats.huggingface_models import (
    check_model,
    is_byte_level,
    model_from_json,
    model_json,
    written_scores,
)
from shardpiece.tokenizer.formats.rust_floats import rust_float, rust_text
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.tokenizer.unigram import NARROW

_HERE = "@vocab"


def problem(tokenizer: Tokenizer) -> str | None:
    """Why a tokenizer.json cannot say what this tokenizer does; None when it can."""
    try:
        huggingface_text.check(tokenizer.engine, is_byte_level(tokenizer.model))
        huggingface_decoder.decoder_json(tokenizer)
        check_model(tokenizer.model, tokenizer.added_tokens)
    except FormatError as error:
        return str(error)
    return None


def nearly(tokenizer: Tokenizer) -> str | None:
    """Why that library encodes rare texts in another way than what ``to_json`` gives it means; None when it does not."""
    normalizer = tokenizer.engine.normalizer
    if normalizer is not None and normalizer.spec["type"] == "sentencepiece" and normalizer.spec["table"]:
        return "Hugging Face's library applies SentencePiece's character map by grapheme, not by the longest match"
    if tokenizer.model.kind == "unigram" and tokenizer.model.arithmetic == NARROW:
        return "Hugging Face's library adds up scores in float64, SentencePiece in float32, and near ties come out otherwise"
    return None


def to_json(tokenizer: Tokenizer) -> dict:
    """The tokenizer as the content of a tokenizer.json. Raises FormatError for what it cannot say."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(token) for token in tokenizer.added_tokens],
        "normalizer": huggingface_text.normalizer(tokenizer.engine, is_byte_level(tokenizer.model)),
        "pre_tokenizer": huggingface_text.pre_tokenizer(tokenizer.engine, is_byte_level(tokenizer.model)),
        "post_processor": huggingface_template.post_processor(tokenizer),
        "decoder": huggingface_decoder.decoder_json(tokenizer),
        "model": model_json(tokenizer.model, tokenizer.added_tokens),
    }


def _added_token(token: AddedToken) -> dict:
    return {
        "id": token.id,
        "content": token.text,
        "single_word": token.single_word,
        "lstrip": token.lstrip,
        "rstrip": token.rstrip,
        "normalized": token.normalized,
        "special": token.special,
    }


def to_bytes(tokenizer: Tokenizer) -> bytes:
    content = to_json(tokenizer)
    if content["model"]["type"] != "Unigram":
        return _dumped(content).encode()
    entries, content["model"]["vocab"] = content["model"]["vocab"], _HERE
    before, _, after = _dumped(content).rpartition(f'"vocab": "{_HERE}"')
    lines = (f"[{json.dumps(text, ensure_ascii=False)},\n{rust_text(score)}]" for text, score in entries)
    return "".join((before, '"vocab": [', ",\n".join(lines), "]", after)).encode()


def _dumped(content: dict) -> str:
    # With indent= Python's encoder would be the slow one.
    return json.dumps(content, ensure_ascii=False, separators=(",\n", ": ")) + "\n"


def read_content(raw: bytes) -> dict:
    """The JSON as that library reads it."""
    return json.loads(raw, parse_float=rust_float)


def unwritten_scores(tokenizer: Tokenizer) -> dict[str, float]:
    """By id, the scores that have no text in tokenizer.json."""
    if tokenizer.model.kind != "unigram":
        return {}
    scores = written_scores(tokenizer.model)
    return {str(i): x for i, x in enumerate(scores) if rust_float(rust_text(x)) != x}


def outside_model(tokenizer: Tokenizer) -> list[int]:
    """Ids of tokens that are not special and stand in the vocabulary of tokenizer.json, but are no token of the model."""
    vocab = tokenizer.model.vocab
    return [t.id for t in tokenizer.added_tokens if not t.special and t.id < len(vocab) and vocab[t.id] is None]


def from_json(content: dict, engine: TextEngine, settings: dict, more: dict, parts: dict, source: str) -> Tokenizer:
    """Read back what ``to_json`` wrote; ``engine``, the model's ``settings``, ``more`` about it that only
    the artifact says, and the other ``parts`` (as Tokenizer takes them) come from there. Raises FormatError naming ``source``
    and the part that does not fit."""
    try:
        for i, score in more["unwritten_scores"].items():
            content["model"]["vocab"][int(i)][1] = score
        model = model_from_json(content["model"], settings, parts["added_tokens"], set(more["outside_model"]), source)
        return Tokenizer(engine, model, **parts)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(
            f"{source}: not a tokenizer.json that shardpiece wrote ({type(error).__name__}: {error})"
        ) from None


def check_same(content: dict, tokenizer: Tokenizer, source: str) -> None:
    """Raises FormatError for a tokenizer.json that ``tokenizers`` would encode with in another way than ``tokenizer``."""
    expected = to_json(tokenizer)
    settings = [key for key in expected["model"] if key not in ("vocab", "merges")]
    wrong = [
        *(key for key in ("normalizer", "pre_tokenizer", "added_tokens", "post_processor", "decoder")
          if content.get(key) != expected[key]),
        *(f"model.{key}" for key in settings if content["model"].get(key) != expected["model"][key]),
    ]  # fmt: skip
    if wrong:
        raise FormatError(f"{source}: {wrong[0]} is not what shardpiece.json says: one of the two files was changed")
