"""Pieces made readable: what a token id stands for, with every invisible byte shown."""

import unicodedata

from shardpiece.tokenizer.tokenizer import Tokenizer

_NAMED = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍"}


def readable(token: bytes) -> str:
    """A token for people: spaces and line ends as symbols, bytes that are no whole character as ``<E2>``."""
    text = token.decode("utf-8", "surrogateescape")
    plain = text.replace(" ", "·")
    if plain.isprintable():
        return plain
    return "".join(map(_shown, text))


def readable_parts(token: bytes) -> list[tuple[str, bool]]:
    """The same in parts: (text, whether it is a symbol for what could not be seen), neighbours of one kind together."""
    parts: list[tuple[str, bool]] = []
    for character in token.decode("utf-8", "surrogateescape"):
        shown = _shown(character)
        symbol = shown != character
        if parts and parts[-1][1] == symbol:
            parts[-1] = (parts[-1][0] + shown, symbol)
        else:
            parts.append((shown, symbol))
    return parts


def _shown(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"<{code - 0xDC00:02X}>"
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) in ("Cc", "Cf", "Co", "Cn", "Zs", "Zl", "Zp"):
        return f"<U+{code:04X}>"
    return character


def show_words(words: list[bytes]) -> str:
    """Words on one line, and their number."""
    return f"{'|'.join(readable(word) for word in words)}\n{_number(len(words), 'word')}"


def show_pieces(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Pieces and ids on two lines, and their number."""
    pieces = "|".join(readable(tokenizer.token_bytes(i)) for i in ids)
    size = len(tokenizer.decode_bytes(ids))
    ratio = f", {size / len(ids):.2f} bytes/token" if ids else ""
    return f"{pieces}\n{' '.join(map(str, ids))}\n{_number(len(ids), 'token')}, {_number(size, 'byte')}{ratio}"


def _number(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
