"""Hugging Face ``tokenizer.json``, written so that ``tokenizers`` and ``transformers`` encode as we do."""

import json

from shardpiece.errors import FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.formats import huggingface_text
from shardpiece.tokenizer.formats.huggingface_models import (
    decoder_json,
    is_byte_level,
    model_from_json,
    model_json,
)
from shardpiece.tokenizer.tokenizer import Tokenizer


def to_json(tokenizer: Tokenizer) -> dict:
    """The tokenizer as the content of a tokenizer.json. Raises FormatError for what it cannot say."""
    special = [
        {
            "id": i,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for text, i in tokenizer.special_tokens.items()
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": huggingface_text.normalizer(tokenizer.engine, is_byte_level(tokenizer.model)),
        "pre_tokenizer": huggingface_text.pre_tokenizer(tokenizer.engine, is_byte_level(tokenizer.model)),
        "post_processor": None,
        "decoder": decoder_json(tokenizer.decoder, tokenizer.model),
        "model": model_json(tokenizer.model, tokenizer.special_tokens),
    }


def to_bytes(tokenizer: Tokenizer) -> bytes:
    # With indent= Python's encoder would be the slow one.
    return (json.dumps(to_json(tokenizer), ensure_ascii=False, separators=(",\n", ": ")) + "\n").encode()


def from_json(content: dict, engine: TextEngine, settings: dict, source: str) -> Tokenizer:
    """Read back what ``to_json`` wrote; ``engine`` and the model's ``settings`` come from the artifact. Raises FormatError
    naming ``source`` and the part that does not fit."""
    try:
        special = {token["content"]: token["id"] for token in content["added_tokens"]}
        return Tokenizer(engine, model_from_json(content["model"], settings, special, source), special)
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
