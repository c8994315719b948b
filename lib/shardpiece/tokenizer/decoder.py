"""How tokens become text again: by the steps of a Hugging Face decoder, or as engine and model imply.

The steps work on a list of texts, one for each token, as that library does: token texts are spelled as in
``tokenizer.json``, byte-level ones in the byte alphabet.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.byte_alphabet import text_bytes
from shardpiece.text.engine import TextEngine
from shardpiece.text.normalizers import Normalizer, normalizer
from shardpiece.tokenizer import sentencepiece_decoder
from shardpiece.tokenizer.model import Model

# Step → its settings and their types.
STEPS: dict[str, dict[str, type]] = {
    "byte_level": {},
    "wordpiece": {"prefix": str, "cleanup": bool},
    "metaspace": {"replacement": str, "strip": bool},
    "bpe": {"suffix": str},
    "byte_fallback": {},
    "fuse": {},
    "replace": {"content": str},  # and "pattern" or "literal"
    "strip": {"content": str, "start": int, "stop": int},
    "ctc": {"pad_token": str, "word_delimiter_token": str, "cleanup": bool},
    "spaces": {},
    "sentencepiece": sentencepiece_decoder.SETTINGS,
}
# English put together again, in this order (Hugging Face's ``cleanup``).
_CLEANUP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
_BYTE = re.compile(r"<0x(\+[0-9a-fA-F]|[0-9a-fA-F]{2})>")


@dataclass(frozen=True)
class Decoder:
    """``steps``: dicts with "type", one of STEPS, and its settings, as stored in artifacts. Each takes the texts that the
    one before gives; in the end they are joined.

    "byte_level": all texts to bytes by the byte alphabet (a text with another character in it stands for its UTF-8), and
    these to one text. "wordpiece": a space between texts, but before those that begin with ``prefix``, which goes; "cleanup"
    takes spaces before English punctuation away. "metaspace": ``replacement`` to spaces, with "strip" those of the first text
    to nothing. "bpe": ``suffix`` to a space, of the last text to nothing. "byte_fallback": neighbouring <0x..> to the text
    of these bytes, or to as many U+FFFD. "fuse": all texts to one. "replace": as in normalizers. "strip": ``content``, a
    character, up to ``start`` times from the front of every text and ``stop`` times from its end. "ctc": equal neighbours to
    one, then without ``pad_token``. "spaces": all texts to one with spaces between. "sentencepiece": see
    ``sentencepiece_decoder``.

    Raises FormatError for steps that are none of these.
    """

    steps: tuple[dict, ...]
    _run: tuple[Callable[[list[str]], list[str]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "steps", tuple(dict(step) for step in self.steps))
        object.__setattr__(self, "_run", tuple(_step(step) for step in self.steps))

    @property
    def spec(self) -> list[dict]:
        return [dict(step) for step in self.steps]

    @property
    def is_byte_level(self) -> bool:
        """Whether it puts bytes together and does nothing else."""
        return [step["type"] for step in self.steps if step["type"] != "fuse"] == ["byte_level"] and (
            self.steps[0]["type"] == "byte_level"
        )

    @property
    def is_sentencepiece(self) -> bool:
        """Whether it is SentencePiece's own Decode."""
        return [step["type"] for step in self.steps] == ["sentencepiece"]

    def text(self, texts: Sequence[str]) -> str:
        parts = list(texts)
        for run in self._run:
            parts = run(parts)
        return "".join(parts)


def _step(step: dict) -> Callable[[list[str]], list[str]]:
    kind = step.get("type")
    if kind not in STEPS:
        raise FormatError(f"decoder: the step {kind!r:.60} is not known")
    given = {key: value for key, value in step.items() if key != "type"}
    if kind == "replace" and ("pattern" in given) != ("literal" in given):
        given.pop("pattern", None)
        given.pop("literal", None)
    wanted = STEPS[kind]
    if set(given) != set(wanted) or any(type(value) is not wanted[key] for key, value in given.items()):
        raise FormatError(f"decoder {kind}: expected {', '.join(wanted) or 'no settings'}, not {given!r:.80}")
    match kind:
        case "byte_level":
            return lambda texts: [b"".join(map(text_bytes, texts)).decode(errors="replace")]
        case "wordpiece":
            return lambda texts: _wordpiece(texts, step["prefix"], step["cleanup"])
        case "metaspace":
            return lambda texts: _metaspace(texts, step["replacement"], step["strip"])
        case "bpe":
            suffix = step["suffix"]
            return lambda texts: [
                text.replace(suffix, " " if i < len(texts) - 1 else "") for i, text in enumerate(texts)
            ]
        case "byte_fallback":
            return _byte_fallback
        case "fuse":
            return lambda texts: ["".join(texts)]
        case "replace" if step.get("literal"):
            return lambda texts: [text.replace(step["literal"], step["content"]) for text in texts]
        case "replace":
            rule = _replacement(step)
            return lambda texts: [rule.normalize_text(text) for text in texts]
        case "strip":
            if len(step["content"]) != 1 or min(step["start"], step["stop"]) < 0:
                raise FormatError(f"decoder strip: content is one character, not {step['content']!r:.20}")
            return lambda texts: [_strip(text, step["content"], step["start"], step["stop"]) for text in texts]
        case "ctc":
            return lambda texts: _ctc(texts, step["pad_token"], step["word_delimiter_token"], step["cleanup"])
        case "sentencepiece":
            return sentencepiece_decoder.decoder(step)
    return lambda texts: [" ".join(texts)]


def _cleaned(text: str) -> str:
    for spaced, joined in _CLEANUP:
        text = text.replace(spaced, joined)
    return text


def _wordpiece(texts: list[str], prefix: str, cleanup: bool) -> list[str]:
    joined = [
        text if i == 0 else text.removeprefix(prefix) if text.startswith(prefix) else " " + text
        for i, text in enumerate(texts)
    ]
    return [_cleaned(text) for text in joined] if cleanup else joined


def _metaspace(texts: list[str], replacement: str, strip: bool) -> list[str]:
    return [text.replace(replacement, "" if i == 0 and strip else " ") for i, text in enumerate(texts)]


def _byte_fallback(texts: list[str]) -> list[str]:
    result: list[str] = []
    for is_byte, group in groupby(texts, lambda text: len(text) == 6 and _BYTE.fullmatch(text) is not None):
        if not is_byte:
            result += group
            continue
        raw = bytes(int(text[3:5], 16) for text in group)
        try:
            result.append(raw.decode())
        except UnicodeDecodeError:
            result += ["\ufffd"] * len(raw)
    return result


def _replacement(step: dict) -> Normalizer:
    try:
        return normalizer(step)
    except ConfigError as error:
        raise FormatError(f"decoder replace: {error}") from None


def _strip(text: str, content: str, start: int, stop: int) -> str:
    first = next((i for i in range(min(start, len(text))) if text[i] != content), min(start, len(text)))
    last = len(text)
    while last > first and len(text) - last < stop and text[last - 1] == content:
        last -= 1
    return text[first:last]


def _ctc(texts: list[str], pad_token: str, word_delimiter_token: str, cleanup: bool) -> list[str]:
    kept = (text.replace(pad_token, "") for text, _ in groupby(texts))
    if cleanup:
        kept = (_cleaned(text).replace(word_delimiter_token, " ") for text in kept)
    return [text for text in kept if text]


@dataclass(frozen=True)
class ImpliedDecoder:
    """What undoes a text engine and a model, as far as it can be undone; works on the bytes of pieces.

    ``kind``: "bytes": pieces are put together as they are; "metaspace": ``mark`` is a space, and with ``strip`` the first
    one is none (the text engine put it there); "wordpiece": a space between pieces, but before those that begin with
    ``mark``; "suffix": ``mark`` is a space but for the last one; "words": a space between pieces."""

    kind: str = "bytes"
    mark: bytes = b""
    strip: bool = False

    def join(self, pieces: Sequence[bytes], ids: Sequence[int]) -> bytes:
        parts = [pieces[i] for i in ids]
        match self.kind:
            case "metaspace":
                text = b"".join(parts).replace(self.mark, b" ")
                return text.removeprefix(b" ") if self.strip else text
            case "wordpiece":
                rest = (part[len(self.mark) :] if part.startswith(self.mark) else b" " + part for part in parts[1:])
                return b"".join((*parts[:1], *rest))
            case "suffix":
                return b"".join(parts).removesuffix(self.mark).replace(self.mark, b" ")
            case "words":
                return b" ".join(parts)
        return b"".join(parts)


def implied_decoder(engine: TextEngine, model: Model) -> ImpliedDecoder:
    """The decoder that undoes what engine and model do to white space."""
    if model.kind == "wordpiece":
        return ImpliedDecoder("wordpiece", model.prefix)
    if getattr(model, "suffix", b""):
        return ImpliedDecoder("suffix", model.suffix)
    if getattr(model, "alphabet", None) == "bytes":
        return ImpliedDecoder()
    if getattr(model, "prefix", b""):
        return ImpliedDecoder("wordpiece", model.prefix)
    for step in engine.pretokenizer.steps:
        if step.kind == "metaspace":
            return ImpliedDecoder(
                "metaspace", step.replacement.encode(), step.prepend != "never" or _adds_prefix(engine)
            )
    drops = any(getattr(step, "behavior", "") == "removed" for step in engine.pretokenizer.steps)
    return ImpliedDecoder("words") if model.kind == "word" and drops else ImpliedDecoder()


def _adds_prefix(engine: TextEngine) -> bool:
    """Whether the normalizer puts a space in front, SentencePiece's way."""
    if engine.normalizer is None:
        return False
    spec = engine.normalizer.spec
    steps = spec["steps"] if spec["type"] == "sequence" else [spec]
    return any(step["type"] == "sentencepiece" and step["add_dummy_prefix"] for step in steps)
