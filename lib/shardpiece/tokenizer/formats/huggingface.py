"""Hugging Face ``tokenizer.json`` for byte-level BPE, written so that ``tokenizers`` and ``transformers`` encode as we do.

In that file a token is spelled in the byte-level alphabet of GPT-2: printable bytes stand for themselves, the other
68 are shifted to U+0100 and up, in order.
"""

import json

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.formats import huggingface_text
from shardpiece.tokenizer.tokenizer import Tokenizer


def byte_alphabet() -> list[str]:
    """The character of each byte value."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = [""] * 256
    for b in printable:
        characters[b] = chr(b)
    shifted = 0x100
    for b in range(256):
        if not characters[b]:
            characters[b] = chr(shifted)
            shifted += 1
    return characters


def byte_level_order() -> list[int]:
    """Byte values sorted by their character: the order in which Hugging Face's trainer numbers them, and GPT-2's."""
    alphabet = byte_alphabet()
    return sorted(range(256), key=alphabet.__getitem__)


_ALPHABET = byte_alphabet()
_BYTE_OF = {ord(character): b for b, character in enumerate(_ALPHABET)}
_TO_ALPHABET = dict(enumerate(_ALPHABET))


def spell(token: bytes) -> str:
    return token.decode("latin-1").translate(_TO_ALPHABET)


def unspell(text: str) -> bytes:
    try:
        return bytes(_BYTE_OF[ord(character)] for character in text)
    except KeyError as error:
        raise FormatError(
            f"token {text!r} has a character outside the byte-level alphabet: {chr(error.args[0])!r}"
        ) from None


def to_json(tokenizer: Tokenizer) -> dict:
    """The tokenizer as the content of a tokenizer.json."""
    spelled = [spell(token) for token in tokenizer.model.vocab]
    base = len(tokenizer.model)
    special = [
        {
            "id": base + i,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, text in enumerate(tokenizer.special_tokens)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": huggingface_text.normalizer(tokenizer.engine),
        "pre_tokenizer": huggingface_text.pre_tokenizer(tokenizer.engine),
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(spelled)},
            "merges": [f"{spelled[a]} {spelled[b]}" for a, b in tokenizer.model.merges.tolist()],
        },
    }


def to_bytes(tokenizer: Tokenizer) -> bytes:
    return (json.dumps(to_json(tokenizer), ensure_ascii=False, indent=1) + "\n").encode()


def from_json(content: dict, engine: TextEngine, source: str) -> Tokenizer:
    """Read back what ``to_json`` wrote; ``engine`` comes from the artifact. Raises FormatError naming
    ``source`` and the part that does not fit."""
    try:
        model = content["model"]
        if model["type"] != "BPE":
            raise FormatError(f"{source}: model.type is {model['type']!r}; this version reads byte-level BPE")
        vocab = model["vocab"]
        tokens: list[bytes] = [b""] * len(vocab)
        for text, i in vocab.items():
            if not isinstance(i, int) or not 0 <= i < len(vocab) or tokens[i]:
                raise FormatError(f"{source}: the ids of model.vocab are not dense from 0 (see {text!r}: {i})")
            tokens[i] = unspell(text)
        ids = dict(vocab.items())
        merges = np.array([[ids[part] for part in _pair(line)] for line in model["merges"]], np.int32)
        special = sorted(content["added_tokens"], key=lambda token: token["id"])
        if [token["id"] for token in special] != list(range(len(vocab), len(vocab) + len(special))):
            raise FormatError(f"{source}: the ids of added_tokens do not follow the vocabulary")
        return Tokenizer(engine, BPEModel(tuple(tokens), merges), tuple(token["content"] for token in special))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(
            f"{source}: not a tokenizer.json that shardpiece wrote ({type(error).__name__}: {error})"
        ) from None


def check_same(content: dict, tokenizer: Tokenizer, source: str) -> None:
    """Raises FormatError for a tokenizer.json that ``tokenizers`` would encode with in another way than ``tokenizer``."""
    expected = to_json(tokenizer)
    settings = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "dropout",
                "ignore_merges")  # fmt: skip
    wrong = [
        *(key for key in ("normalizer", "pre_tokenizer", "added_tokens", "post_processor", "decoder")
          if content.get(key) != expected[key]),
        *(f"model.{key}" for key in settings if content["model"].get(key) != expected["model"][key]),
    ]  # fmt: skip
    if wrong:
        raise FormatError(f"{source}: {wrong[0]} is not what shardpiece.json says: one of the two files was changed")


def _pair(line: str | list[str]) -> list[str]:
    """A merge as two tokens: written "a b" by us, ["a", "b"] when tokenizers has saved the file again."""
    return line.split(" ") if isinstance(line, str) else line
