"""Models in the terms of Hugging Face's ``tokenizer.json``."""

from collections.abc import Container, Sequence

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.tokenizer.added_tokens import AddedToken
from shardpiece.tokenizer.bpe import BYTES, BPEModel
from shardpiece.tokenizer.formats.byte_alphabet import spell, unspell
from shardpiece.tokenizer.model import Model, byte_piece
from shardpiece.tokenizer.unigram import UnigramModel
from shardpiece.tokenizer.wordlevel import WordLevelModel
from shardpiece.tokenizer.wordpiece import WordPieceModel


def is_byte_level(model: Model) -> bool:
    return model.kind == "bpe" and model.alphabet == BYTES


def spelled_vocabulary(model: Model, added_tokens: Sequence[AddedToken]) -> list[str]:
    """The text of each id below len(model): added tokens that the model leaves room for are entries like the others."""
    texts = {token.id: token.text for token in added_tokens}
    one = spell if is_byte_level(model) else bytes.decode
    spelled = [texts.get(i) if piece is None else one(piece) for i, piece in enumerate(model.vocab)]
    if None in spelled:
        raise FormatError(f"the id {spelled.index(None)} is no token: tokenizer.json has no place for gaps")
    ids = {text: i for i, text in enumerate(spelled)}
    if len(ids) != len(spelled):
        raise FormatError("a special token is spelled like an ordinary token in the alphabet of tokenizer.json")
    behind = len(spelled)
    for token in added_tokens:
        # That library gives ids anew: those of the model's entries, then one after the other.
        expected = ids.get(token.text, behind)
        behind += token.text not in ids
        if token.id != expected:
            raise FormatError(
                f"the added token {token.text!r} has the id {token.id}, and Hugging Face's library would give it {expected}"
            )
    return spelled


def model_json(model: Model, added_tokens: Sequence[AddedToken]) -> dict:
    vocab = spelled_vocabulary(model, added_tokens)
    texts = {token.id: token.text for token in added_tokens}
    unk = None if model.unk_id is None else texts.get(model.unk_id) or vocab[model.unk_id]
    ids = {text: i for i, text in enumerate(vocab)}
    match model.kind:
        case "bpe":
            # A piece of a byte-level model has no space in it, one of another may.
            pairs = [(vocab[a], vocab[b]) for a, b in model.merges.tolist()]
            return {
                "type": "BPE",
                "dropout": model.dropout or None,
                "unk_token": unk,
                "continuing_subword_prefix": model.prefix.decode() or None,
                "end_of_word_suffix": model.suffix.decode() or None,
                "fuse_unk": unk is not None and model.fuse_unk,
                "byte_fallback": model.byte_fallback,
                "ignore_merges": model.ignore_merges,
                "vocab": ids,
                "merges": [f"{a} {b}" for a, b in pairs] if is_byte_level(model) else [list(pair) for pair in pairs],
            }
        case "wordpiece":
            return {
                "type": "WordPiece",
                "unk_token": unk,
                "continuing_subword_prefix": model.prefix.decode(),
                "max_input_chars_per_word": model.max_characters,
                "vocab": ids,
            }
        case "unigram":
            scores = [0.0 if model.vocab[i] is None else float(score) for i, score in enumerate(model.scores)]
            return {
                "type": "Unigram",
                "unk_id": model.unk_id,
                "vocab": [list(entry) for entry in zip(vocab, scores, strict=True)],
                "byte_fallback": model.byte_ids is not None,
            }
        case "word":
            return {"type": "WordLevel", "vocab": ids, "unk_token": unk}
    raise FormatError(f"tokenizer.json has no model of the kind {model.kind!r}")


def model_from_json(
    content: dict, settings: dict, added_tokens: Sequence[AddedToken], outside: Container[int], source: str
) -> Model:
    """Read back what ``model_json`` wrote; ``settings``: those of shardpiece.json; ``outside``: ids of added tokens that are
    none of the model's, beside those of special tokens. Raises FormatError, KeyError, TypeError
    or ValueError for what it did not write."""
    types = {"bpe": "BPE", "wordpiece": "WordPiece", "unigram": "Unigram", "word": "WordLevel"}
    kind = settings["type"]
    if content["type"] != types[kind]:
        raise FormatError(f"{source}: model.type is {content['type']!r}, and shardpiece.json says {types[kind]}")
    entries = content["vocab"]
    if kind == "unigram":
        texts = [text for text, _ in entries]
    else:
        texts = [None] * len(entries)
        for text, i in entries.items():
            if type(i) is not int or not 0 <= i < len(texts) or texts[i] is not None:
                raise FormatError(f"{source}: the ids of model.vocab are not dense from 0 (see {text!r}: {i})")
            texts[i] = text
    one = unspell if kind == "bpe" and settings["alphabet"] == BYTES else str.encode
    held = {token.id for token in added_tokens if token.special or token.id in outside}
    vocab = tuple(None if i in held else one(text) for i, text in enumerate(texts))
    unk = settings["unk"]
    match kind:
        case "bpe":
            ids = {text: i for i, text in enumerate(texts)}
            merges = np.array([[ids[part] for part in _pair(line)] for line in content["merges"]], np.int32)
            return BPEModel(
                vocab,
                merges.reshape(-1, 2),
                settings["alphabet"],
                settings["prefix"].encode(),
                settings["suffix"].encode(),
                unk,
                settings["byte_fallback"],
                settings["fuse_unk"],
                settings["drop_unknown"],
                settings["ignore_merges"],
                settings["dropout"],
            )
        case "wordpiece":
            return WordPieceModel(vocab, unk, settings["prefix"].encode(), settings["max_characters"])
        case "unigram":
            scores = np.array([score for _, score in entries], np.float64)
            byte_ids = None
            if settings["byte_fallback"]:
                ids = {text: i for i, text in enumerate(texts)}
                byte_ids = np.array([ids.get(byte_piece(b).decode(), -1) for b in range(256)], np.int32)
            return UnigramModel.from_settings(vocab, scores, byte_ids, settings)
    return WordLevelModel(vocab, unk)


def _pair(line: str | list[str]) -> list[str]:
    """A merge as two tokens: written "a b" or ["a", "b"]; tokenizers writes the latter when it saves a file."""
    return line.split(" ") if isinstance(line, str) else line
