"""Decoders in the terms of Hugging Face's ``tokenizer.json``."""

from shardpiece.errors import FormatError
from shardpiece.tokenizer.decoder import Decoder
from shardpiece.tokenizer.formats.oniguruma import spelled
from shardpiece.tokenizer.formats.oniguruma_read import translated
from shardpiece.tokenizer.tokenizer import Tokenizer

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def decoder_json(tokenizer: Tokenizer) -> dict | None:
    if tokenizer.decoder is not None:
        return _written(tokenizer.decoder)
    if getattr(tokenizer.model, "alphabet", None) == "bytes":
        return _BYTE_LEVEL
    implied = tokenizer.implied_decoder
    match implied.kind:
        case "metaspace":
            steps = [_replace(implied.mark.decode(), " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
            if implied.strip:
                steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
            return {"type": "Sequence", "decoders": steps}
        case "wordpiece":
            return {"type": "WordPiece", "prefix": implied.mark.decode(), "cleanup": False}
        case "suffix":
            return {"type": "BPEDecoder", "suffix": implied.mark.decode()}
        case "words":
            return None  # the library puts spaces between tokens
    return {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}


def _replace(text: str, content: str) -> dict:
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


def _sentencepiece(step: dict) -> dict:
    """As near as that library's steps come: control tokens and the unknown one are spelled as they are."""
    steps = [{"type": "ByteFallback"}, {"type": "Fuse"}, _replace("▁", " ")]
    if step["add_dummy_prefix"] or step["remove_extra_whitespaces"]:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _written(decoder: Decoder) -> dict | None:
    if [step["type"] for step in decoder.steps] == ["sentencepiece"]:
        return _sentencepiece(decoder.steps[0])
    if [step["type"] for step in decoder.steps] == ["spaces"]:
        return None
    steps = [_step(step) for step in decoder.steps]
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "decoders": steps}


def _step(step: dict) -> dict:
    match step["type"]:
        case "byte_level":
            return _BYTE_LEVEL
        case "wordpiece":
            return {"type": "WordPiece", "prefix": step["prefix"], "cleanup": step["cleanup"]}
        case "metaspace":
            scheme = "always" if step["strip"] else "never"
            return {
                "type": "Metaspace",
                "replacement": step["replacement"],
                "prepend_scheme": scheme,
                "split": True,
            }
        case "bpe":
            return {"type": "BPEDecoder", "suffix": step["suffix"]}
        case "byte_fallback":
            return {"type": "ByteFallback"}
        case "fuse":
            return {"type": "Fuse"}
        case "replace" if "literal" in step:
            return _replace(step["literal"], step["content"])
        case "replace":
            return {"type": "Replace", "pattern": {"Regex": spelled(step["pattern"], True)}, "content": step["content"]}
        case "strip":
            return {"type": "Strip", "content": step["content"], "start": step["start"], "stop": step["stop"]}
        case "ctc":
            return {"type": "CTC", **{key: value for key, value in step.items() if key != "type"}}
    raise FormatError(f"tokenizer.json has no decoder that does what the step {step['type']} does among others")


def read(config: dict | None) -> Decoder:
    """A decoder of tokenizer.json as steps. Raises FormatError for what is not known here."""
    if config is None:
        return Decoder(({"type": "spaces"},))
    return Decoder(tuple(_flat(config)))


def _flat(config: dict) -> list[dict]:
    if config["type"] == "Sequence":
        return [step for part in config["decoders"] for step in _flat(part)]
    return [_read_step(config)]


def _read_step(config: dict) -> dict:
    match config["type"]:
        case "ByteLevel":
            return {"type": "byte_level"}
        case "WordPiece":
            return {"type": "wordpiece", "prefix": config["prefix"], "cleanup": config["cleanup"]}
        case "Metaspace":
            scheme = config.get("prepend_scheme", "always").lower()
            return {"type": "metaspace", "replacement": config["replacement"], "strip": scheme != "never"}
        case "BPEDecoder":
            return {"type": "bpe", "suffix": config["suffix"]}
        case "ByteFallback":
            return {"type": "byte_fallback"}
        case "Fuse":
            return {"type": "fuse"}
        case "Replace":
            pattern = config["pattern"]
            if "String" in pattern:
                return {"type": "replace", "literal": pattern["String"], "content": config["content"]}
            return {"type": "replace", "pattern": translated(pattern["Regex"], True), "content": config["content"]}
        case "Strip":
            return {"type": "strip", **{key: config[key] for key in ("content", "start", "stop")}}
        case "CTC":
            return {"type": "ctc", **{key: config[key] for key in ("pad_token", "word_delimiter_token", "cleanup")}}
    raise FormatError(f"decoder: the type {config['type']!r:.60} is not known here")
