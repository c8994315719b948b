"""``tokenizer_config.json``, which lies beside the vocabulary files of transformers and says what these cannot."""

import json

from shardpiece.errors import FormatError

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
