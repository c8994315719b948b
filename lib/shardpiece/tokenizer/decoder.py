"""How pieces become text again: what each kind of model does with its marks of words."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.model import Model

MARK = "▁".encode()


@dataclass(frozen=True)
class Decoder:
    """``kind``: "bytes": pieces are put together as they are; "metaspace": ``mark`` is a space, and with ``strip`` the first
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


def decoder_of(engine: TextEngine, model: Model) -> Decoder:
    """The decoder that undoes what engine and model do to white space, as far as it can be undone."""
    if model.kind == "wordpiece":
        return Decoder("wordpiece", model.prefix)
    if getattr(model, "suffix", b""):
        return Decoder("suffix", model.suffix)
    if getattr(model, "alphabet", None) == "bytes":
        return Decoder()
    if getattr(model, "prefix", b""):
        return Decoder("wordpiece", model.prefix)
    for step in engine.pretokenizer.steps:
        if step.kind == "metaspace":
            return Decoder("metaspace", step.replacement.encode(), step.prepend != "never" or _adds_prefix(engine))
    drops = any(getattr(step, "behavior", "") == "removed" for step in engine.pretokenizer.steps)
    return Decoder("words") if model.kind == "word" and drops else Decoder()


def _adds_prefix(engine: TextEngine) -> bool:
    """Whether the normalizer puts a space in front, SentencePiece's way."""
    if engine.normalizer is None:
        return False
    spec = engine.normalizer.spec
    steps = spec["steps"] if spec["type"] == "sequence" else [spec]
    return any(step["type"] == "sentencepiece" and step["add_dummy_prefix"] for step in steps)
