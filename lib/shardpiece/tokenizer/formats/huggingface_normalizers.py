"""The "normalizer" of a Hugging Face tokenizer.json as a setting for ``normalizer``."""

import regex

from shardpiece.errors import ConfigError

_PLAIN = {
    "NFC": "nfc",
    "NFD": "nfd",
    "NFKC": "nfkc",
    "NFKD": "nfkd",
    "Lowercase": "lowercase",
    "StripAccents": "strip_accents",
    "Nmt": "nmt",
}

# What means something else in Oniguruma's Ruby syntax than in the regex module's.
_DIFFERS = regex.compile(r"\\[hHGKNORXyYZz]|\(\?[a-zA-Z-]*[ma]|\[\[:|&&|\\g<|\(\?~")


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
            return [{"type": "replace", "pattern": _translated(pattern["Regex"]), "content": config["content"]}]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"normalizer {kind}: damaged ({type(error).__name__}: {error})") from None
    raise ConfigError(f"normalizer: the type {kind!r:.60} of Hugging Face's tokenizers is not known here")


def _translated(pattern: str) -> str:
    """An Oniguruma pattern in the syntax of the ``regex`` module: there ^ and $ always match at lines."""
    found = _DIFFERS.search(pattern)
    if found:
        raise ConfigError(f"normalizer Replace: {found[0]!r} in {pattern!r} has another meaning here")
    return f"(?m){pattern}" if regex.search(r"(?<!\[)\^|\$", pattern) else pattern
