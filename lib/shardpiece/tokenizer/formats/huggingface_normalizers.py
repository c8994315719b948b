"""The "normalizer" of a Hugging Face tokenizer.json as a setting for ``normalizer``."""

from shardpiece.errors import ConfigError, FormatError
from shardpiece.tokenizer.formats.oniguruma_read import translated

_PLAIN = {
    "NFC": "nfc",
    "NFD": "nfd",
    "NFKC": "nfkc",
    "NFKD": "nfkd",
    "Lowercase": "lowercase",
    "StripAccents": "strip_accents",
    "Nmt": "nmt",
}


def huggingface_setting(config: dict | None) -> list:
    """Raises ConfigError for a normalizer that cannot be had exactly."""
    if config is None:
        return []
    kind = config.get("type") if isinstance(config, dict) else None
    try:
        if kind == "Sequence":
            return [step for one in config["normalizers"] for step in huggingface_setting(one)]
        if kind in _PLAIN:
            return [_PLAIN[kind]]
        if kind == "BertNormalizer":
            return [{"type": "bert"} | {key: value for key, value in config.items() if key != "type"}]
        if kind == "Strip":
            return [{"type": "strip", "left": config["strip_left"], "right": config["strip_right"]}]
        if kind == "Prepend":
            return [{"type": "prepend", "text": config["prepend"]}]
        if kind == "Precompiled":
            return [{"type": "charsmap", "table": config["precompiled_charsmap"], "reference": "huggingface"}]
        if kind == "Replace":
            pattern = config["pattern"]
            if "String" in pattern:
                return [{"type": "replace", "literal": pattern["String"], "content": config["content"]}]
            if pattern["Regex"] == " {2,}" and config["content"] == " ":
                return ["collapse_spaces"]
            return [{"type": "replace", "pattern": translated(pattern["Regex"], True), "content": config["content"]}]
    except FormatError as error:
        raise ConfigError(f"normalizer {kind}: {error}") from None
    except (KeyError, TypeError) as error:
        raise ConfigError(f"normalizer {kind}: damaged ({type(error).__name__}: {error})") from None
    raise ConfigError(f"normalizer: the type {kind!r:.60} of Hugging Face's tokenizers is not known here")
