"""SentencePiece's Decode: the texts of tokens as one text."""

import re
from collections.abc import Callable

from shardpiece.errors import FormatError
from shardpiece.text.normalizers import Normalizer

SPACE = "▁"
SETTINGS: dict[str, type] = {
    "control": list,
    "unk_piece": str,
    "unk_surface": str,
    "byte_fallback": bool,
    "add_dummy_prefix": bool,
    "remove_extra_whitespaces": bool,
    "denormalizer": list,
}
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def decoder(step: dict) -> Callable[[list[str]], list[str]]:
    """The step "sentencepiece" of a decoder, whose settings are SETTINGS.

    ``control`` texts say nothing; ``unk_piece`` says ``unk_surface``; with ``byte_fallback``, neighbouring <0x..> are bytes,
    each that is no part of a character U+FFFD. ▁ is a space, but at the beginning, while nothing was said: there a ▁ goes,
    one from every text with ``remove_extra_whitespaces``, else one with ``add_dummy_prefix``. ``denormalizer``: none, or one
    normalizer for the result. Raises FormatError for one that is damaged.
    """
    control, unk = frozenset(step["control"]), step["unk_piece"]
    squeeze, prefix = step["remove_extra_whitespaces"], step["add_dummy_prefix"]
    if len(step["denormalizer"]) > 1 or not all(isinstance(text, str) for text in control):
        raise FormatError("decoder sentencepiece: control are texts, denormalizer has one normalizer or none")
    denormalize = [Normalizer.from_spec(spec) for spec in step["denormalizer"]]

    def run(texts: list[str]) -> list[str]:
        out: list[str] = []
        raw = bytearray()
        said, dropped = False, False

        def flush() -> bool:
            if raw:
                out.append(_characters(bytes(raw)))
                raw.clear()
                return True
            return False

        begins = True
        for text in texts:
            if step["byte_fallback"] and (byte := _BYTE.fullmatch(text)):
                raw.append(int(byte[1], 16))
                continue
            said |= flush()
            begins = begins and not (dropped or said)
            dropped = False
            if text in control:
                continue
            if text == unk:
                part = step["unk_surface"]
            else:
                if begins and (prefix or squeeze) and text.startswith(SPACE):
                    text = text[len(SPACE) :]
                    dropped = not squeeze
                part = text.replace(SPACE, " ")
            said |= bool(part)
            out.append(part)
        flush()
        joined = "".join(out)
        return [normalizer.normalize_text(joined) for normalizer in denormalize] or [joined]

    return run


def _characters(raw: bytes) -> str:
    """UTF-8 as text, U+FFFD for each byte that is no part of a character."""
    parts = []
    i = 0
    while i < len(raw):
        try:
            parts.append(raw[i:].decode())
            break
        except UnicodeDecodeError as error:
            parts.append(raw[i : i + error.start].decode() + "\ufffd")
            i += error.start + 1
    return "".join(parts)
