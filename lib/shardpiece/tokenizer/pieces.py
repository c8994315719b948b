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
    shown = []
    for character in text:
        code = ord(character)
        if 0xDC80 <= code <= 0xDCFF:
            shown.append(f"<{code - 0xDC00:02X}>")
        elif character in _NAMED:
            shown.append(_NAMED[character])
        elif unicodedata.category(character) in ("Cc", "Cf", "Co", "Cn", "Zs", "Zl", "Zp"):
            shown.append(f"<U+{code:04X}>")
        else:
            shown.append(character)
    return "".join(shown)


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
