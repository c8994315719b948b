"""The "model" of a Hugging Face tokenizer.json as a model."""

from collections.abc import Container, Mapping

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.text.byte_alphabet import byte_alphabet, spell, unspell
from shardpiece.tokenizer.bpe import BYTES, CHARACTERS, NEVER_IN_TEXT, BPEModel
from shardpiece.tokenizer.model import Model, byte_piece
from shardpiece.tokenizer.unigram import UNKNOWN_PENALTY, UnigramModel
from shardpiece.tokenizer.wordlevel import WordLevelModel
from shardpiece.tokenizer.wordpiece import WordPieceModel

_MAX_ID = 1 << 24


def type_of(config: dict) -> str:
    """The type, which old files leave out."""
    if "type" in config:
        return config["type"]
    if isinstance(config["vocab"], list):
        return "Unigram"
    if "merges" in config:
        return "BPE"
    return "WordPiece" if "max_input_chars_per_word" in config else "WordLevel"


def vocabulary(config: dict) -> list[str | None]:
    """The text of each id, None where there is none. Raises FormatError for ids that are none."""
    if isinstance(config["vocab"], list):
        return [text for text, _ in config["vocab"]]
    entries = config["vocab"]
    if not all(type(i) is int and 0 <= i < _MAX_ID for i in entries.values()):
        text, i = next(pair for pair in entries.items() if type(pair[1]) is not int or not 0 <= pair[1] < _MAX_ID)
        raise FormatError(f"model: {text!r} has the id {i!r}, which is no id")
    texts: list[str | None] = [None] * (max(entries.values(), default=-1) + 1)
    for text, i in entries.items():
        if texts[i] is not None:
            raise FormatError(f"model: {text!r} and {texts[i]!r} have the same id {i}")
        texts[i] = text
    return texts


def spells_bytes(config: dict, texts: list[str | None]) -> bool:
    """Whether a BPE behind ByteLevel has every byte, so that none is unknown: the others work on the alphabet's texts."""
    if type_of(config) != "BPE" or config.get("continuing_subword_prefix"):
        return False
    suffix = config.get("end_of_word_suffix") or ""
    characters = [character for b, character in enumerate(byte_alphabet()) if b not in NEVER_IN_TEXT]
    known = set(texts)
    marked = all(character + suffix in known for character in characters)
    return marked and known.issuperset(characters) and spell(suffix.encode()) == suffix


def read(
    config: dict, texts: list[str | None], byte_level: bool, special: Container[str], added: Container[str]
) -> Model:
    """``texts``: what ``vocabulary`` gave; ``byte_level``: whether words are bytes; ``special``: texts of special tokens,
    which are none of the model's; ``added``: of all added tokens. Raises FormatError for what cannot be had exactly."""
    pieces = _pieces(texts, byte_level, special, added)
    ids = {text: i for i, text in enumerate(texts) if text is not None}
    unk = ids.get(config.get("unk_token"))
    match type_of(config):
        case "BPE":
            return _bpe(config, pieces, ids, unk, byte_level, special)
        case "WordPiece":
            prefix = config["continuing_subword_prefix"].encode()
            return WordPieceModel(pieces, _known(unk, config), prefix, config["max_input_chars_per_word"])
        case "WordLevel":
            return WordLevelModel(pieces, _known(unk, config))
        case "Unigram":
            return _unigram(config, pieces, ids)
    raise FormatError(f"model: the type {type_of(config)!r:.60} is not known here")


def _pieces(
    texts: list[str | None], byte_level: bool, special: Container[str], added: Container[str]
) -> list[bytes | None]:
    pieces: list[bytes | None] = []
    for i, text in enumerate(texts):
        if text is None or text in special:
            pieces.append(None)
        elif not byte_level:
            pieces.append(text.encode())
        else:
            try:
                pieces.append(unspell(text))
            except FormatError:
                if text not in added:
                    raise FormatError(
                        f"model: token {i} {text!r:.60} is no text of the byte alphabet, and no added token"
                    ) from None
                pieces.append(None)  # which only its text in a document gives
    return pieces


def _known(unk: int | None, config: dict) -> int:
    if unk is None:
        raise FormatError(f"model: the unknown token {config.get('unk_token')!r:.60} is not in the vocabulary")
    return unk


def _bpe(
    config: dict,
    pieces: list[bytes | None],
    ids: Mapping[str, int],
    unk: int | None,
    byte_level: bool,
    special: Container[str],
) -> BPEModel:
    prefix = config.get("continuing_subword_prefix") or ""
    merges = _merges(config["merges"], ids, special, len(prefix))
    fallback = bool(config.get("byte_fallback", False)) and not byte_level
    names = [byte_piece(b).decode() for b in range(256)]
    if fallback and not any(name in ids for name in names):
        fallback = False
    if unk is None and config.get("unk_token") is not None and not (byte_level or fallback):
        _known(unk, config)
    if fallback and (prefix or config.get("end_of_word_suffix")):
        raise FormatError(
            "model: byte_fallback with a prefix or suffix, whose bytes that library adds to a character's"
        )
    dropout = config.get("dropout") or 0.0
    return BPEModel(
        pieces,
        merges,
        BYTES if byte_level else CHARACTERS,
        prefix.encode(),
        (config.get("end_of_word_suffix") or "").encode(),
        unk,
        fallback,
        bool(config.get("fuse_unk", False)),
        drop_unknown=unk is None and not (byte_level or fallback),
        ignore_merges=bool(config.get("ignore_merges", False)),
        dropout=float(dropout),
    )


def _merges(lines: list, ids: Mapping[str, int], special: Container[str], prefix: int) -> np.ndarray:
    """int32 [m, 2]. Of a pair listed twice, the later place counts, as in that library. ``prefix``: characters that the
    second part loses."""
    pairs: list[tuple[int, int]] = []
    for r, line in enumerate(lines):
        if isinstance(line, str) and line.startswith("#version"):
            continue
        parts = line.split(" ") if isinstance(line, str) else line
        if len(parts) != 2:
            raise FormatError(f"model: merge {r} {line!r:.60} is not a pair")
        left, right = parts
        if left not in ids or right not in ids:
            raise FormatError(f"model: merge {r} {line!r:.60} names what is not in the vocabulary")
        for text in (left + right[prefix:], left, right):
            if text in special:
                raise FormatError(f"model: ordinary text merges to the special token {text!r:.60}, or on from it")
        pairs.append((ids[left], ids[right]))
    if len(set(pairs)) != len(pairs):
        last = {pair: r for r, pair in enumerate(pairs)}
        pairs = sorted(last, key=last.__getitem__)
    return np.array(pairs, np.int32).reshape(-1, 2)


def _unigram(config: dict, pieces: list[bytes | None], ids: Mapping[str, int]) -> UnigramModel:
    scores = np.array([score for _, score in config["vocab"]], np.float64)
    byte_ids = None
    if config.get("byte_fallback", False):
        byte_ids = np.array([ids.get(byte_piece(b).decode(), -1) for b in range(256)], np.int32)
    # That library finds pieces of bytes in text too, and takes the lowest score of all entries.
    matched = np.array([piece is not None for piece in pieces], bool)
    lowest = float(scores.min(initial=np.inf))
    return UnigramModel(
        pieces, scores, config.get("unk_id"), byte_ids, matched=matched, unknown_score=lowest - UNKNOWN_PENALTY
    )
