"""``tokenizer_config.json``, which lies beside the vocabulary files of transformers and says what these cannot."""

import json
from collections.abc import Iterable

from shardpiece.errors import FormatError
from shardpiece.tokenizer.added_tokens import AddedToken

CONFIG_FILE = "tokenizer_config.json"


def read_config(raw: bytes | None, source: str) -> dict:
    """Its content; empty where there is none. Raises FormatError when it is no JSON object."""
    if raw is None:
        return {}
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{source}: {CONFIG_FILE} beside it is not readable as JSON ({error})") from None
    if not isinstance(content, dict):
        raise FormatError(f"{source}: {CONFIG_FILE} beside it is no JSON object")
    return content


def check_class(config: dict, known: tuple[str, ...], source: str) -> None:
    """Raises FormatError for a tokenizer that does more than the format says."""
    name = config.get("tokenizer_class")
    if name is not None and str(name).removesuffix("Fast") not in known:
        raise FormatError(
            f"{source}: {CONFIG_FILE} beside it says tokenizer_class {name!r}, which does other things to text than "
            f"{known[0]}: load its tokenizer.json"
        )


def flag(config: dict, key: str, default: bool, source: str) -> bool:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise FormatError(f"{source}: {CONFIG_FILE} beside it has {key} {value!r}, which is not true or false")
    return value


def token_text(config: dict, key: str) -> str | None:
    """A token, written as its text or as an object with ``content``."""
    value = config.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def added_tokens(config: dict, source: str) -> list[AddedToken] | None:
    """Those of ``added_tokens_decoder``; None where there is none. Raises FormatError for a damaged one."""
    listed = config.get("added_tokens_decoder")
    if listed is None:
        return None
    try:
        tokens = []
        for i, token in listed.items():
            flags = {name: token.get(name, name == "special") for name in _FLAGS}
            tokens.append(AddedToken(token["content"], int(i), **flags))
        return tokens
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{source}: added_tokens_decoder of {CONFIG_FILE} beside it is damaged ({type(error).__name__}: {error})"
        ) from None


def added_tokens_json(tokens: Iterable[AddedToken]) -> dict:
    return {
        str(token.id): {"content": token.text, **{name: getattr(token, name) for name in _FLAGS}} for token in tokens
    }


def added_problem(tokens: Iterable[AddedToken], what: str, flags: bool = True) -> str | None:
    """Why a format that knows special tokens alone cannot say what ``tokens`` do; ``flags``: whether how special tokens are
    found in text is a part of it."""
    for token in tokens:
        if not token.special:
            return f"{what} has no tokens that are always found in text, such as {token.text!r}"
        if flags and (token.lstrip or token.rstrip or token.single_word or token.normalized):
            return f"{what} cannot say how {token.text!r} is found in text (lstrip, rstrip, single_word, normalized)"
    return None
