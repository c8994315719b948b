"""Tokenizers made here as SentencePiece's ``.model``."""

from shardpiece.errors import FormatError
from shardpiece.tokenizer.bpe import CHARACTERS
from shardpiece.tokenizer.formats import sentencepiece as sp
from shardpiece.tokenizer.tokenizer import Tokenizer


def problem(tokenizer: Tokenizer) -> str | None:
    """Why a ``.model`` cannot say what this tokenizer does; None when it can."""
    model = tokenizer.model
    if model.kind not in ("unigram", "bpe") or (model.kind == "bpe" and model.alphabet != CHARACTERS):
        return f"SentencePiece has no model of kind {model.kind} over bytes or whole words"
    if model.kind == "bpe" and (model.prefix or model.suffix):
        return "SentencePiece has no marks inside or at the end of words"
    if model.unk_id is None or model.unk_id not in tokenizer.special_tokens.values():
        return "SentencePiece needs an unknown token"
    if any(b"\0" in (piece or b"") for piece in model.vocab) or any("\0" in text for text in tokenizer.special_tokens):
        return "a piece holds U+0000, which SentencePiece cannot have"
    try:
        sp.normalizer_spec(tokenizer.engine)
    except FormatError as error:
        return str(error)
    return None


def to_bytes(tokenizer: Tokenizer) -> bytes:
    """The content of the ``.model``. Raises FormatError naming what it cannot say."""
    reason = problem(tokenizer)
    if reason is not None:
        raise FormatError(reason)
    model, special = tokenizer.model, {i: text for text, i in tokenizer.special_tokens.items()}
    size = tokenizer.vocab_size
    fallback = set(model.byte_ids.tolist()) if model.byte_ids is not None and len(model.byte_ids) else set()
    pieces, types = [], []
    for i in range(size):
        if i in special:
            pieces.append(special[i].encode())
            types.append(sp.UNKNOWN if i == model.unk_id else sp.CONTROL)
        else:
            pieces.append(model.vocab[i])
            types.append(sp.BYTE if i in fallback else sp.NORMAL)
    if model.kind == "bpe":
        scores = sp.bpe_scores(types)
    else:
        scores = [0.0 if t != sp.NORMAL else float(model.scores[i]) for i, t in enumerate(types)]
    settings = tokenizer.provenance.get("settings", {})
    trainer = dict(settings.get("sentencepiece", {}))
    if "character_coverage" in settings:
        trainer["character_coverage"] = settings["character_coverage"]
    if settings.get("max_token_length"):
        trainer["max_sentencepiece_length"] = settings["max_token_length"]
    ids = tokenizer.special_tokens
    return sp.to_sentencepiece(
        model.kind,
        pieces,
        scores,
        types,
        tokenizer.engine,
        bos_id=ids.get("<s>"),
        eos_id=ids.get("</s>"),
        pad_id=ids.get("<pad>"),
        byte_fallback=bool(fallback),
        trainer=trainer,
    )
