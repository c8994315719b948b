"""Mistral's Tekken: JSON with the pattern, the special tokens and a byte-level vocabulary in tiktoken's order.

As ``mistral_common.tokens.tokenizers.tekken`` reads it: of the vocabulary only the first ``default_vocab_size -
default_num_special_tokens`` entries are used, and their ids follow those of the special tokens, which begin at 0.
"""

import base64
import binascii
import json
import re

from shardpiece.errors import FormatError
from shardpiece.text import patterns, regex_syntax
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.text.user_patterns import shortened
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.formats import companions, tiktoken
from shardpiece.tokenizer.tokenizer import Tokenizer

# Those of versions up to v7, whose files may leave them out.
SPECIAL_TOKENS = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip
_LAST_WITHOUT = 7


def is_tekken(content) -> bool:
    return (
        isinstance(content, dict)
        and isinstance(content.get("vocab"), list)
        and isinstance(content.get("config"), dict)
        and "pattern" in content["config"]
    )


def from_json(content: dict, source: str) -> Tokenizer:
    """Raises FormatError naming what is missing, wrong, or not known."""
    if not is_tekken(content):
        raise FormatError(f"{source}: not a tekken file: config with a pattern, or vocab, is missing")
    config = content["config"]
    size = _number(config, "default_vocab_size", source)
    n_special = _number(config, "default_num_special_tokens", source)
    entries = content["vocab"]
    if not n_special <= size <= n_special + len(entries):
        raise FormatError(
            f"{source}: config.default_vocab_size is {size:,}, and there are {len(entries):,} entries and {n_special:,} "
            f"special tokens"
        )
    special = special_tokens(content, n_special, source)
    pieces: list[bytes | None] = [None] * n_special
    seen: dict[bytes, int] = {}
    for i, entry in enumerate(entries[: size - n_special]):
        piece = _piece(entry, i, source)
        if piece in seen:
            raise FormatError(f"{source}: vocab[{i}] has the bytes {piece!r} of vocab[{seen[piece]}]")
        if i < 256 and piece != bytes([i]):
            raise FormatError(f"{source}: vocab[{i}] is {piece!r}: the first 256 entries are the bytes in order")
        seen[piece] = i
        pieces.append(piece)
    engine = TextEngine(_pretokenizer(config["pattern"], source))
    try:
        return Tokenizer(engine, BPEModel.from_ranks(pieces), special)
    except FormatError as error:
        raise FormatError(f"{source}: {error}") from None


def _number(config: dict, key: str, source: str) -> int:
    value = config.get(key)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise FormatError(f"{source}: config.{key} is {value!r} and not a number of tokens")
    return value


def _piece(entry, i: int, source: str) -> bytes:
    try:
        if entry["rank"] != i:
            raise FormatError(f"{source}: vocab[{i}].rank is {entry['rank']!r}: ranks are dense and in order")
        piece = binascii.a2b_base64(entry["token_bytes"], strict_mode=True)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{source}: vocab[{i}] has no rank or no token_bytes in base64") from None
    if not 0 < len(piece) <= tiktoken.LONGEST_PIECE:
        raise FormatError(f"{source}: vocab[{i}] has {len(piece):,} bytes")
    return piece


def special_tokens(content: dict, number: int, source: str) -> dict[str, int]:
    """Ids by text: those of the file, or of its version, and ``<SPECIAL_20>``, ``<SPECIAL_21>``, … up to ``number``."""
    listed = content.get("special_tokens")
    if listed is None:
        version = content["config"].get("version")
        known = re.fullmatch(r"v(\d+)", version) if isinstance(version, str) else None
        if known is None or int(known[1]) > _LAST_WITHOUT:
            raise FormatError(
                f"{source}: special_tokens is missing, which files up to version v{_LAST_WITHOUT} may leave out, and "
                f"config.version is {version!r}"
            )
        texts = [*SPECIAL_TOKENS]
    else:
        try:
            texts = [token["token_str"] for token in listed]
            dense = all(token["rank"] == i for i, token in enumerate(listed))
        except (KeyError, TypeError):
            raise FormatError(f"{source}: special_tokens are not objects with rank and token_str") from None
        if not dense:
            raise FormatError(f"{source}: the ranks of special_tokens are not 0, 1, 2, …")
    texts += [f"<SPECIAL_{i}>" for i in range(len(texts), number)]
    if len(texts) != number or len(set(map(str, texts))) != number:
        raise FormatError(
            f"{source}: {len(texts):,} special tokens, or one twice, and config.default_num_special_tokens is {number:,}"
        )
    return {text: i for i, text in enumerate(texts)}


def _pretokenizer(pattern, source: str) -> PreTokenizer:
    """tiktoken's reading of ``pattern``, which drops text between matches. Raises FormatError for one that it may read in
    another way."""
    if pattern == patterns.PATTERNS["tekken"]:
        return PreTokenizer("tekken")
    try:
        if not isinstance(pattern, str):
            raise regex_syntax.UnsupportedPattern("it is no text")
        if "\\Z" in pattern:
            raise regex_syntax.UnsupportedPattern("\\Z, which has two meanings: \\z is the end of the text")
        regex_syntax.parse(pattern)
    except regex_syntax.UnsupportedPattern as error:
        raise FormatError(
            f"{source}: config.pattern {shortened(str(pattern))} is not understood exactly: {error}"
        ) from None
    pretokenizer = PreTokenizer(pattern)
    if pretokenizer.steps[0].dfa.total:
        return pretokenizer
    return PreTokenizer({"type": "split", "pattern": pattern, "behavior": "removed", "invert": True})


# --- writing --------------------------------------------------------------------------------------------------------


def problem(tokenizer: Tokenizer) -> str | None:
    """Why a tekken file cannot say what this tokenizer does; None when it can."""
    model = tokenizer.model
    if model.kind != "bpe" or model.alphabet != "bytes" or model.prefix or model.suffix:
        return f"tekken has byte-level BPE alone, and this model is one of kind {model.kind} over other units"
    if (reason := companions.added_problem(tokenizer.added_tokens, "tekken")) is not None:
        return reason
    n = len(tokenizer.special_tokens)
    if {*tokenizer.special_tokens.values()} != {*range(n)} or not model.vocab.present[n:].all():
        return "tekken has the special tokens in front, from 0, and dense ids behind them"
    if model.byte_ids.tolist() != [*range(n, n + 256)]:
        return "tekken has the 256 bytes in order first, and this vocabulary has them in another order"
    if tokenizer.template:
        return "tekken says nothing of what is put around a text"
    if (reason := tiktoken.engine_problem(tokenizer)) is None:
        try:
            _pretokenizer(tokenizer.pretokenizer.pattern, "it")
        except FormatError as error:
            return str(error)
    return reason or tiktoken.rank_problem(model)


def to_bytes(tokenizer: Tokenizer) -> bytes:
    """The content of tekken.json. Raises FormatError naming what it cannot say."""
    if (reason := problem(tokenizer)) is not None:
        raise FormatError(reason)
    n = len(tokenizer.special_tokens)
    entries = [
        {"rank": i, "token_bytes": base64.b64encode(piece).decode(), "token_str": _text(piece)}
        for i, piece in enumerate(tokenizer.model.vocab[n:])
    ]
    content = {
        "config": {
            "pattern": tokenizer.pretokenizer.pattern,
            "num_vocab_tokens": len(entries),
            "default_vocab_size": len(entries) + n,
            "default_num_special_tokens": n,
            "version": f"v{_LAST_WITHOUT}",
        },
        "vocab": entries,
        "special_tokens": [
            {"rank": i, "token_str": text, "is_control": True} for text, i in tokenizer.special_tokens.items()
        ],
    }
    return json.dumps(content, ensure_ascii=False, separators=(",\n", ": ")).encode()


def _text(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None
