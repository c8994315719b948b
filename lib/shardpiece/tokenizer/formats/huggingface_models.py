"""Models in the terms of Hugging Face's ``tokenizer.json``."""

from collections.abc import Container, Mapping, Sequence

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.text.byte_alphabet import spell, unspell
from shardpiece.tokenizer.added_tokens import AddedToken
from shardpiece.tokenizer.bpe import BYTES, BPEModel
from shardpiece.tokenizer.formats import huggingface_read_models
from shardpiece.tokenizer.model import Model, byte_piece
from shardpiece.tokenizer.unigram import UNKNOWN_PENALTY, WIDE, UnigramModel
from shardpiece.tokenizer.wordlevel import WordLevelModel
from shardpiece.tokenizer.wordpiece import WordPieceModel


def is_byte_level(model: Model) -> bool:
    return model.kind == "bpe" and model.alphabet == BYTES


def spelled_vocabulary(model: Model, added_tokens: Sequence[AddedToken]) -> list[str | None]:
    """The text of each id of the vocabulary in the file: the model's pieces, and added tokens that it leaves room for. That
    library gives other added tokens the ids behind it, one after the other; where those are not theirs, all of them are
    entries too. None for ids that are no tokens. Raises FormatError where added tokens would have other ids."""
    texts = {token.id: token.text for token in added_tokens}
    one = spell if is_byte_level(model) else bytes.decode
    spelled = [texts.get(i) if piece is None else one(piece) for i, piece in enumerate(model.vocab)]
    wrong = _misplaced(spelled, added_tokens)
    if wrong is not None:
        spelled += [texts.get(i) for i in range(len(spelled), max(texts) + 1)]
        wrong = _misplaced(spelled, added_tokens)
    if wrong is not None:
        token, new = wrong
        raise FormatError(
            f"the added token {token.text!r} has the id {token.id}, and Hugging Face's library would give it {new}"
        )
    return spelled


def _misplaced(spelled: list[str | None], added_tokens: Sequence[AddedToken]) -> tuple[AddedToken, int] | None:
    """The first added token that would have another id beside this vocabulary, with that id."""
    ids = {text: i for i, text in enumerate(spelled) if text is not None}
    if len(ids) != len(spelled) - spelled.count(None):
        raise FormatError("a special token is spelled like an ordinary token in the alphabet of tokenizer.json")
    given = given_ids([token.text for token in added_tokens], ids)
    return next((pair for pair in zip(added_tokens, given, strict=True) if pair[0].id != pair[1]), None)


def given_ids(texts: Sequence[str], vocab: Mapping[str, int]) -> list[int]:
    """The ids that Hugging Face's library gives to added tokens, whatever a file says: those that the model's vocabulary
    has for their texts, the others behind its size or the largest id so far."""
    given: list[int] = []
    largest = -1
    for text in texts:
        new = vocab.get(text)
        if new is None:
            new = largest + 1 if largest >= len(vocab) else len(vocab)
        largest = max(largest, new)
        given.append(new)
    return given


def check_model(model: Model, added_tokens: Sequence[AddedToken]) -> None:
    """Raises FormatError for a model that tokenizer.json cannot hold."""
    vocab = spelled_vocabulary(model, added_tokens)
    if model.kind == "unigram":
        _check_dense(vocab)
        written_scores(model)
    elif model.kind not in ("bpe", "wordpiece", "word"):
        raise FormatError(f"tokenizer.json has no model of the kind {model.kind!r}")


def _check_dense(vocab: list[str | None]) -> None:
    if None in vocab:
        raise FormatError(f"the id {vocab.index(None)} is no token: a Unigram of tokenizer.json has no gaps")


def model_json(model: Model, added_tokens: Sequence[AddedToken]) -> dict:
    vocab = spelled_vocabulary(model, added_tokens)
    texts = {token.id: token.text for token in added_tokens}
    unk = None if model.unk_id is None else texts.get(model.unk_id) or vocab[model.unk_id]
    ids = {text: i for i, text in enumerate(vocab) if text is not None}
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
                "fuse_unk": model.fuse_unk,
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
            _check_dense(vocab)
            return {
                "type": "Unigram",
                "unk_id": model.unk_id,
                "vocab": [list(entry) for entry in zip(vocab, written_scores(model), strict=True)],
                "byte_fallback": model.byte_ids is not None,
            }
        case "word":
            return {"type": "WordLevel", "vocab": ids, "unk_token": unk}
    raise FormatError(f"tokenizer.json has no model of the kind {model.kind!r}")


def written_scores(model: UnigramModel) -> list[float]:
    """Of all ids. That library takes an unknown character to be UNKNOWN_PENALTY worse than the worst of all entries."""
    scores = np.where(model.vocab.present, model.piece_scores, 0.0)
    if scores.min(initial=np.inf) - UNKNOWN_PENALTY != model.unknown_score:
        scores = model.piece_scores
    if model.arithmetic == WIDE and scores.min(initial=np.inf) - UNKNOWN_PENALTY != model.unknown_score:
        raise FormatError(
            f"an unknown character costs {model.unknown_score} here, and Hugging Face's library takes "
            f"{UNKNOWN_PENALTY} below the lowest score"
        )
    return scores.tolist()


def model_from_json(
    content: dict, settings: dict, added_tokens: Sequence[AddedToken], outside: Container[int], source: str
) -> Model:
    """Read back what ``model_json`` wrote; ``settings``: those of shardpiece.json; ``outside``: ids of added tokens that are
    none of the model's, beside those of special tokens. Raises FormatError, KeyError,
    TypeError or ValueError for what it did not write."""
    types = {"bpe": "BPE", "wordpiece": "WordPiece", "unigram": "Unigram", "word": "WordLevel"}
    kind = settings["type"]
    if content["type"] != types[kind]:
        raise FormatError(f"{source}: model.type is {content['type']!r}, and shardpiece.json says {types[kind]}")
    entries = content["vocab"]
    texts = huggingface_read_models.vocabulary(content)
    one = unspell if kind == "bpe" and settings["alphabet"] == BYTES else str.encode
    held = {token.id for token in added_tokens if token.special or token.id in outside}
    own = texts[: settings["size"]]
    vocab = tuple(None if text is None or i in held else one(text) for i, text in enumerate(own))
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
