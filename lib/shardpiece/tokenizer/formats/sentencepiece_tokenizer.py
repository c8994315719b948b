"""SentencePiece's ``.model`` as a tokenizer, and tokenizers as a ``.model``."""

import base64

import numpy as np

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.normalization.charsmap import Charsmap
from shardpiece.text.normalizers import Normalizer
from shardpiece.tokenizer.bpe import CHARACTERS, BPEModel
from shardpiece.tokenizer.decoder import Decoder
from shardpiece.tokenizer.formats import sentencepiece as sp
from shardpiece.tokenizer.tokenizer import AddedToken, Tokenizer
from shardpiece.tokenizer.unigram import NARROW, UnigramModel

_FLAGS = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")


def from_bytes(raw: bytes, source: str) -> Tokenizer:
    """The tokenizer of a ``.model``: the ids and texts that SentencePiece gives.

    Control pieces and the unknown one are special tokens; what the file says about the beginning and the end of texts stands
    in ``provenance``, as the library puts them nowhere unasked. Raises FormatError naming ``source`` for a file that is
    damaged, or that does what shardpiece cannot.
    """
    try:
        return _tokenizer(sp.read_model(raw))
    except (FormatError, ConfigError) as error:
        raise FormatError(f"{source}: {error}") from None


def _tokenizer(file: sp.SentencePieceFile) -> Tokenizer:
    kind, types = file.trainer["model_type"], np.array(file.types)
    if kind == "word":
        raise FormatError("SentencePiece model: of the kind word, which shardpiece does not read")
    special = {
        piece.decode(): i
        for i, (piece, t) in enumerate(zip(file.pieces, file.types, strict=True))
        if t in (sp.CONTROL, sp.UNKNOWN)
    }
    vocab = [None if t in (sp.CONTROL, sp.UNKNOWN) else piece for piece, t in zip(file.pieces, file.types, strict=True)]
    added: tuple[AddedToken, ...] = ()
    if kind == "unigram":
        byte_ids = None
        if file.trainer["byte_fallback"]:
            ids = {piece: i for i, piece in enumerate(vocab) if types[i] == sp.BYTE}
            byte_ids = np.array([ids[name] for name in sp.BYTE_PIECES], np.int32)
        user_defined = np.flatnonzero(types == sp.USER_DEFINED)
        found = (types == sp.NORMAL) | (types == sp.USER_DEFINED)
        model = UnigramModel(
            vocab, file.scores.astype(np.float64), file.unk_id, byte_ids, NARROW, found, tuple(user_defined.tolist())
        )
    else:
        if (types == sp.UNUSED).any():
            raise FormatError(
                f"SentencePiece model: piece {int(np.argmax(types == sp.UNUSED))} is UNUSED in a model of the kind {kind}: "
                f"it is merged and taken apart again, which shardpiece does not do"
            )
        # User-defined symbols are cut out before anything merges.
        added = tuple(
            AddedToken(file.pieces[i].decode(), i, special=False, normalized=True)
            for i in np.flatnonzero(types == sp.USER_DEFINED).tolist()
        )
        for token in added:
            vocab[token.id] = None
        merged = (types == sp.NORMAL) if kind == "bpe" else np.zeros(len(types), bool)
        model = BPEModel.from_scores(vocab, file.scores, file.unk_id, file.trainer["byte_fallback"], merged)
    return Tokenizer(
        sp.text_engine(file),
        model,
        special,
        {"sentencepiece": {"kind": kind, **{name: file.id_of(name) for name in ("bos", "eos", "pad")}}},
        added_tokens=added,
        decoder=Decoder((_decoder_step(file),)),
    )


def _decoder_step(file: sp.SentencePieceFile) -> dict:
    denormalizer = file.denormalizer
    if denormalizer is not None and not denormalizer["precompiled_charsmap"]:
        denormalizer = None
    return {
        "type": "sentencepiece",
        "control": [p.decode() for p, t in zip(file.pieces, file.types, strict=True) if t == sp.CONTROL],
        "unk_piece": file.pieces[file.unk_id].decode(),
        "unk_surface": file.trainer["unk_surface"],
        "byte_fallback": file.trainer["byte_fallback"],
        "add_dummy_prefix": file.normalizer["add_dummy_prefix"],
        "remove_extra_whitespaces": file.normalizer["remove_extra_whitespaces"],
        "denormalizer": [] if denormalizer is None else [_denormalizer(denormalizer).spec],
    }


def _denormalizer(spec: sp.NormalizerSpec) -> Normalizer:
    table = Charsmap.from_bytes(spec["precompiled_charsmap"])
    return Normalizer.sentencepiece(table, **{flag: spec[flag] for flag in _FLAGS})


# --- writing --------------------------------------------------------------------------------------------------------


def problem(tokenizer: Tokenizer) -> str | None:
    """Why a ``.model`` cannot say what this tokenizer does; None when it can, but for the last bits of a Unigram model's
    sums: SentencePiece adds up float32."""
    model = tokenizer.model
    if model.kind not in ("unigram", "bpe") or (model.kind == "bpe" and model.alphabet != CHARACTERS):
        return f"SentencePiece has no model of kind {model.kind} over bytes or whole words"
    if model.kind == "bpe" and (model.prefix or model.suffix):
        return "SentencePiece has no marks inside or at the end of words"
    if model.unk_id is None or model.unk_id not in tokenizer.special_tokens.values():
        return "SentencePiece needs an unknown token"
    if any(b"\0" in (piece or b"") for piece in model.vocab) or any("\0" in t.text for t in tokenizer.added_tokens):
        return "a piece holds U+0000, which SentencePiece cannot have"
    try:
        sp.normalizer_spec(tokenizer.engine)
    except FormatError as error:
        return str(error)
    return _token_problem(tokenizer) or _model_problem(model) or _decoder_problem(tokenizer)


def _token_problem(tokenizer: Tokenizer) -> str | None:
    kept = tokenizer.engine.normalizer.kept_symbols
    for token in tokenizer.added_tokens:
        if token.lstrip or token.rstrip or token.single_word or token.normalized == token.special:
            return f"SentencePiece has no added token like {token.text!r}: a control piece or a user-defined symbol"
        if not token.special and (token.text not in kept or tokenizer.model.kind == "unigram"):
            return f"the added token {token.text!r} is no user-defined symbol of the normalizer"
    if tokenizer.template:
        return "SentencePiece puts no tokens around a text"
    names = {token.id for token in tokenizer.added_tokens}
    for i, piece in enumerate(tokenizer.model.vocab):
        if piece is None and i not in names:
            return f"the id {i} is no token, and SentencePiece's pieces have no gaps"
    return None


def _model_problem(model) -> str | None:
    if model.kind == "unigram":
        if (~model.matched & model.vocab.present).sum() > (0 if model.byte_ids is None else 256):
            return None if model.arithmetic == NARROW else "it has pieces that are not found in text"
        if model.byte_ids is not None and model.byte_ids.min() < 0:
            return "SentencePiece needs a piece for each of the 256 bytes, or none"
        return None
    if not model.fuse_unk or model.drop_unknown or model.ignore_merges:
        return "SentencePiece joins unknown characters, drops none, and merges every word"
    try:
        made = BPEModel.from_scores(
            model.vocab,
            _bpe_scores(model),
            model.unk_id,
            model.byte_fallback,
            None if len(model.merges) else _none(model),
        )
    except FormatError as error:
        return str(error)
    if not np.array_equal(made.merges, model.merges):
        return "its merges are not those of neighbours that are a piece together, in order of the pieces"
    return None


def _none(model: BPEModel) -> np.ndarray:
    return np.zeros(len(model), bool)


def _bpe_scores(model: BPEModel) -> np.ndarray:
    """float32 [pieces]: 0, -1, -2, … in the order of merges, then the pieces that no merge makes."""
    scores = np.zeros(len(model), np.float64)
    made = np.zeros(len(model), bool)
    made[model.merged] = True
    first = model.merged[np.sort(np.unique(model.merged, return_index=True)[1])]
    rest = np.flatnonzero(model.vocab.present & ~made)
    scores[np.concatenate([first, rest])] = -np.arange(len(first) + len(rest), dtype=np.float64)
    return scores.astype(np.float32)


def _decoder_problem(tokenizer: Tokenizer) -> str | None:
    if tokenizer.decoder is None:
        return None
    steps = tokenizer.decoder.steps
    expected = _expected_step(tokenizer)
    if len(steps) == 1 and {**steps[0], "unk_surface": "", "denormalizer": []} == expected:
        return None
    return "SentencePiece decodes in its own way, and this tokenizer has another decoder"


def _expected_step(tokenizer: Tokenizer) -> dict:
    model, stored = tokenizer.model, tokenizer.engine.normalizer.spec
    texts = {i: text for text, i in tokenizer.special_tokens.items()}
    return {
        "type": "sentencepiece",
        "control": [texts[i] for i in sorted(texts) if i != model.unk_id],
        "unk_piece": texts[model.unk_id],
        "unk_surface": "",
        "byte_fallback": _has_bytes(model),
        "add_dummy_prefix": stored["add_dummy_prefix"],
        "remove_extra_whitespaces": stored["remove_extra_whitespaces"],
        "denormalizer": [],
    }


def _has_bytes(model) -> bool:
    return model.byte_ids is not None and len(model.byte_ids) > 0


def to_bytes(tokenizer: Tokenizer) -> bytes:
    """The content of the ``.model``. Raises FormatError naming what it cannot say."""
    reason = problem(tokenizer)
    if reason is not None:
        raise FormatError(reason)
    model = tokenizer.model
    pieces, types = _pieces(tokenizer)
    if model.kind == "unigram":
        scores = [float(score) if t == sp.NORMAL else 0.0 for score, t in zip(model.scores, types, strict=False)]
        scores += [0.0] * (len(types) - len(scores))
    elif np.all(np.diff(model.merged) > 0):
        scores = sp.bpe_scores(types)
    else:
        scores = np.append(_bpe_scores(model), np.zeros(len(types) - len(model), np.float32))
    settings = tokenizer.provenance.get("settings", {})
    trainer = dict(settings.get("sentencepiece", {}))
    if "character_coverage" in settings:
        trainer["character_coverage"] = settings["character_coverage"]
    if settings.get("max_token_length"):
        trainer["max_sentencepiece_length"] = settings["max_token_length"]
    denormalizer = None
    if tokenizer.decoder is not None:
        step = tokenizer.decoder.steps[0]
        trainer["unk_surface"] = step["unk_surface"]
        for stored in step["denormalizer"]:
            denormalizer = _denormalizer_spec(stored)
    return sp.to_sentencepiece(
        model.kind,
        pieces,
        scores,
        types,
        tokenizer.engine,
        **{f"{name}_id": i for name, i in _named_ids(tokenizer).items()},
        byte_fallback=_has_bytes(model),
        trainer=trainer,
        denormalizer=denormalizer,
    )


def _pieces(tokenizer: Tokenizer) -> tuple[list[bytes], list[int]]:
    model = tokenizer.model
    tokens = {token.id: token for token in tokenizer.added_tokens}
    fallback = set(model.byte_ids.tolist()) if _has_bytes(model) else set()
    user_defined = set(getattr(model, "user_defined", ()))
    pieces, types = [], []
    for i in range(tokenizer.vocab_size):
        if i in tokens:
            pieces.append(tokens[i].text.encode())
            types.append(sp.UNKNOWN if i == model.unk_id else sp.CONTROL if tokens[i].special else sp.USER_DEFINED)
            continue
        pieces.append(model.vocab[i])
        if i in fallback:
            types.append(sp.BYTE)
        elif i in user_defined:
            types.append(sp.USER_DEFINED)
        else:
            types.append(sp.NORMAL if model.kind == "bpe" or model.matched[i] else sp.UNUSED)
    return pieces, types


def _named_ids(tokenizer: Tokenizer) -> dict[str, int | None]:
    """The ids of the control pieces for the beginning, the end and padding: as read, else by SentencePiece's names."""
    special = tokenizer.special_tokens
    read = tokenizer.provenance.get("sentencepiece", {})
    named = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
    return {name: read[name] if name in read else special.get(text) for name, text in named.items()}


def _denormalizer_spec(stored: dict) -> sp.NormalizerSpec:
    table = base64.b64decode(stored["table"])
    return sp.NormalizerSpec(precompiled_charsmap=table, **{flag: stored[flag] for flag in _FLAGS})
