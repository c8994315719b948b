"""What a user may write for a normalizer, and what an artifact stores: both checked into the same list of steps.

A step is a dict with "type" and every parameter. A charsmap is there as "rule" (a name, compiled when needed) or as
"table" (a Charsmap; base64 in an artifact).
"""

from difflib import get_close_matches

import regex

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.normalization.charsmap import Charsmap
from shardpiece.text.normalization.charsmap_rules import RULES
from shardpiece.text.user_patterns import compiled

TABLES = 1
"""Which frozen tables: raised whenever a file in ``data/`` changes a result."""

NORMALIZERS = {
    "nfc": "Unicode canonical composition",
    "nfd": "Unicode canonical decomposition",
    "nfkc": "Unicode compatibility composition",
    "nfkd": "Unicode compatibility decomposition",
    "lowercase": "every character in lower case",
    "strip_accents": "combining marks removed (after nfd or nfkd)",
    "bert": "BERT: control characters removed, Chinese characters set apart, accents stripped, lower case",
    "nmt_nfkc": "SentencePiece's default rules: its nfkc, white space unified, control characters removed (*)",
    "nmt_nfkc_cf": "nmt_nfkc and case folding (*)",
    "nfkc_cf": "SentencePiece's nfkc and case folding (*)",
    "strip": "white space removed at both ends",
    "collapse_spaces": "runs of spaces (U+0020) become one",
    "nmt": "control characters removed, white space unified",
}

_REQUIRED = object()
_FLAG = (bool,)
_TEXT = (str,)
_CHARSMAP = {"table": ((str, bytes, Charsmap), None), "rule": (_TEXT, None), "mapping": ((dict,), None)}

# Type → parameter → (types, default).
_PARAMETERS: dict[str, dict[str, tuple[tuple[type, ...], object]]] = {
    **{name: {} for name in ("nfc", "nfd", "nfkc", "nfkd", "lowercase", "strip_accents", "nmt", "collapse_spaces")},
    "strip": {"left": (_FLAG, True), "right": (_FLAG, True)},
    "bert": {
        "clean_text": (_FLAG, True),
        "handle_chinese_chars": (_FLAG, True),
        "strip_accents": ((bool, type(None)), None),
        "lowercase": (_FLAG, True),
    },
    "prepend": {"text": (_TEXT, _REQUIRED)},
    "replace": {"pattern": (_TEXT, None), "literal": (_TEXT, None), "content": (_TEXT, _REQUIRED)},
    "charsmap": {**_CHARSMAP, "reference": (_TEXT, "sentencepiece")},
    "sentencepiece": {
        **_CHARSMAP,
        "add_dummy_prefix": (_FLAG, True),
        "remove_extra_whitespaces": (_FLAG, True),
        "escape_whitespaces": (_FLAG, True),
        "treat_whitespace_as_suffix": (_FLAG, False),
        "user_defined_symbols": ((list, tuple), ()),
    },
}
# Results of these depend on the frozen tables.
_FROZEN = {"nfc", "nfd", "nfkc", "nfkd", "lowercase", "strip_accents", "nmt", "bert", "strip"}
_REFERENCES = ("sentencepiece", "huggingface")


def parse(setting) -> list[dict]:
    """The steps of a user's setting. Raises ConfigError."""
    if setting is None or setting == "none":
        return []
    if isinstance(setting, list | tuple):
        return [step for one in setting for step in parse(one)]
    if isinstance(setting, str):
        if setting in ("nmt_nfkc", "nmt_nfkc_cf", "nfkc_cf"):
            return parse({"type": "charsmap", "rule": setting})
        if setting not in NORMALIZERS and "," in setting:
            raise ConfigError(f"normalizer {setting!r}: give several as a list, or the flag several times")
        if setting in _PARAMETERS and setting not in NORMALIZERS:
            raise ConfigError(
                f"normalizer {setting!r} has settings: write {{type: {setting}, ...}} into a configuration, or --set "
                f"normalizer={{type: {setting}, ...}}"
            )
        if setting not in NORMALIZERS:
            raise ConfigError(f"normalizer {setting!r} is not {_one_of([*NORMALIZERS, 'none'], setting)}")
        return parse({"type": setting})
    if not isinstance(setting, dict):
        raise ConfigError(
            f"normalizer: expected a name, a dict with 'type' or a list of these, not {type(setting).__name__}"
        )
    kind = setting.get("type")
    if kind in ("nmt_nfkc", "nmt_nfkc_cf", "nfkc_cf") and set(setting) == {"type"}:
        return parse(kind)
    if kind == "sequence":
        if set(setting) != {"type", "steps"} or not isinstance(setting["steps"], list | tuple):
            raise ConfigError("normalizer sequence: expected the key 'steps' with a list, and no other")
        return parse(setting["steps"])
    if not isinstance(kind, str) or kind not in _PARAMETERS:
        raise ConfigError(f"normalizer type {kind!r} is not {_one_of([*_PARAMETERS, 'sequence'], kind)}")
    return [_checked({"type": kind} | _arguments(kind, setting))]


def _one_of(names: list[str], wrong) -> str:
    close = get_close_matches(str(wrong), names, 1)
    return f"one of {', '.join(names)}" + (f"; did you mean {close[0]!r}?" if close else "")


def _arguments(kind: str, setting: dict) -> dict:
    parameters = _PARAMETERS[kind]
    for key in setting:
        if key != "type" and key not in parameters:
            known = _one_of([*parameters], key) if parameters else "known: there are no parameters"
            raise ConfigError(f"normalizer {kind}: the key {key!r} is not {known}")
    result = {}
    for key, (types, default) in parameters.items():
        value = setting.get(key, default)
        if value is _REQUIRED:
            raise ConfigError(f"normalizer {kind}: the key {key!r} is missing")
        if key in setting and not isinstance(value, types):
            names = " or ".join("null" if t is type(None) else t.__name__ for t in types)
            raise ConfigError(f"normalizer {kind}: {key} must be {names}, not {type(value).__name__} {value!r:.60}")
        if isinstance(value, str) and key != "table" and not _encodable(value):
            raise ConfigError(f"normalizer {kind}: {key} {value!r:.60} has a lone surrogate")
        result[key] = value
    return result


def _encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _checked(step: dict) -> dict:
    """Checks beyond types, and what a type adds."""
    kind = step["type"]
    if kind in _FROZEN:
        step["tables"] = TABLES
    if kind == "bert" and step["strip_accents"] is None:
        step["strip_accents"] = step["lowercase"]
    elif kind == "replace":
        given = _only(step, ("pattern", "literal"))
        if given is None:
            raise ConfigError("normalizer replace: give either 'pattern' (a regular expression) or 'literal'")
        if given == "pattern":
            compiled(step["pattern"], "normalizer replace")
            step["engine"] = f"regex {regex.__version__}"
        elif not step["literal"]:
            raise ConfigError("normalizer replace: the literal is empty")
    elif kind in ("charsmap", "sentencepiece"):
        _check_charsmap(step)
    return step


def _only(step: dict, keys: tuple[str, ...]) -> str | None:
    """The one key of ``keys`` that is set, the others removed; None when it is not one."""
    given = [key for key in keys if step[key] is not None]
    for key in keys:
        if key not in given:
            del step[key]
    return given[0] if len(given) == 1 else None


def _check_charsmap(step: dict) -> None:
    kind = step["type"]
    if kind == "sentencepiece" and all(step[key] is None for key in _CHARSMAP):
        step["rule"] = "nmt_nfkc"
    given = _only(step, tuple(_CHARSMAP))
    if given is None:
        raise ConfigError(f"normalizer {kind}: give one of 'rule', 'table' (a precompiled charsmap) and 'mapping'")
    if given == "rule" and step["rule"] not in (*RULES, "identity"):
        raise ConfigError(
            f"normalizer {kind}: the rule {step['rule']!r} is not {_one_of([*RULES, 'identity'], step['rule'])}"
        )
    if given == "mapping":
        mapping = step.pop("mapping")
        if not all(isinstance(text, str) for rule in mapping.items() for text in rule):
            raise ConfigError(f"normalizer {kind}: mapping must have texts as keys and values")
        step["table"] = Charsmap.from_mapping(mapping)
    elif given == "table":
        try:
            if isinstance(step["table"], str):
                step["table"] = Charsmap.from_base64(step["table"])
            elif isinstance(step["table"], bytes):
                step["table"] = Charsmap.from_bytes(step["table"])
        except FormatError as error:
            raise ConfigError(f"normalizer {kind}: {error}") from None
    if kind == "charsmap" and step["reference"] not in _REFERENCES:
        raise ConfigError(f"normalizer charsmap: reference is not {_one_of([*_REFERENCES], step['reference'])}")
    if kind == "sentencepiece":
        symbols = step["user_defined_symbols"]
        if not all(isinstance(s, str) and s and "\0" not in s and _encodable(s) for s in symbols):
            raise ConfigError("normalizer sentencepiece: user_defined_symbols must be texts, none of them empty")
        step["user_defined_symbols"] = sorted(set(symbols))


def parse_spec(spec) -> list[dict]:
    """The steps of an artifact, their tables still base64. Raises FormatError."""
    if isinstance(spec, dict) and spec.get("type") == "sequence":
        steps = spec.get("steps")
        if set(spec) != {"type", "steps"} or not isinstance(steps, list) or len(steps) < 2:
            raise FormatError("the stored normalizer is damaged (a sequence without steps)")
    else:
        steps = [spec]
    return [_stored(step) for step in steps]


def _stored(step) -> dict:
    kind = step.get("type") if isinstance(step, dict) else None
    if not isinstance(kind, str) or kind not in _PARAMETERS:
        raise FormatError(f"the stored normalizer is damaged (unknown type {kind!r:.60})")
    tables = step.get("tables")
    if kind in _FROZEN and tables != TABLES:
        raise FormatError(
            f"the stored normalizer {kind} was made with tables {tables!r:.20}; this version has {TABLES}"
        )
    expected = dict(_PARAMETERS[kind])
    if kind in ("charsmap", "sentencepiece"):
        del expected["rule"], expected["mapping"]
        expected["table"] = (_TEXT, _REQUIRED)
    elif kind == "replace":
        del expected["pattern" if "literal" in step else "literal"]
        if "literal" not in step:
            expected["engine"] = (_TEXT, _REQUIRED)
    elif kind == "bert":
        expected["strip_accents"] = (_FLAG, _REQUIRED)
    wanted = {"type", *expected} | ({"tables"} if kind in _FROZEN else set())
    if set(step) != wanted:
        raise FormatError(
            f"the stored normalizer {kind} is damaged (keys {', '.join(sorted(set(step) ^ wanted))[:80]})"
        )
    for key, (types, _) in expected.items():
        value = step[key]
        if not isinstance(value, types) or (isinstance(value, str) and not _encodable(value)):
            raise FormatError(f"the stored normalizer {kind} is damaged ({key} is {value!r:.60})")
    try:
        if "pattern" in expected:
            compiled(step["pattern"], "normalizer replace")
    except ConfigError as error:
        raise FormatError(f"the stored normalizer is damaged ({error})") from None
    symbols = step.get("user_defined_symbols", [])
    if (
        step.get("literal") == ""
        or step.get("reference", "sentencepiece") not in _REFERENCES
        or not all(isinstance(s, str) and s and "\0" not in s and _encodable(s) for s in symbols)
    ):
        raise FormatError(f"the stored normalizer {kind} is damaged")
    return dict(step)
