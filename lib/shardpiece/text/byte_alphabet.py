"""The byte-level alphabet of GPT-2, in which ``tokenizer.json`` spells the tokens of byte-level models.

Printable bytes stand for themselves, the other 68 are shifted to U+0100 and up, in order.
"""

import numpy as np

from shardpiece.errors import FormatError


def byte_alphabet() -> list[str]:
    """The character of each byte value."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = [""] * 256
    for b in printable:
        characters[b] = chr(b)
    shifted = 0x100
    for b in range(256):
        if not characters[b]:
            characters[b] = chr(shifted)
            shifted += 1
    return characters


def byte_level_order() -> list[int]:
    """Byte values sorted by their character: the order in which Hugging Face's trainer numbers them, and GPT-2's."""
    alphabet = byte_alphabet()
    return sorted(range(256), key=alphabet.__getitem__)


_ALPHABET = byte_alphabet()
_BYTE_OF = {ord(character): b for b, character in enumerate(_ALPHABET)}
_TO_ALPHABET = dict(enumerate(_ALPHABET))


def spell(token: bytes) -> str:
    return token.decode("latin-1").translate(_TO_ALPHABET)


def unspell(text: str) -> bytes:
    """Raises FormatError for a character that spells no byte."""
    try:
        return bytes(_BYTE_OF[ord(character)] for character in text)
    except KeyError as error:
        raise FormatError(
            f"token {text!r} has a character outside the byte-level alphabet: {chr(error.args[0])!r}"
        ) from None


def text_bytes(text: str) -> bytes:
    """The bytes that a text spells, or its UTF-8 where a character spells no byte: how Hugging Face decodes."""
    try:
        return bytes(_BYTE_OF[ord(character)] for character in text)
    except KeyError:
        return text.encode()


_WIDTHS = np.array([len(character.encode()) for character in _ALPHABET], np.int64)
_FIRST = np.array([character.encode()[0] for character in _ALPHABET], np.uint8)
_LAST = np.array([character.encode()[-1] for character in _ALPHABET], np.uint8)
_BYTE_AT = np.zeros(0x200, np.uint8)
_BYTE_AT[[*_BYTE_OF]] = [*_BYTE_OF.values()]


def spelled_ends(raw: np.ndarray) -> np.ndarray:
    """int64 [bytes + 1]: how many bytes of UTF-8 the first ones of ``raw`` (uint8) are spelled with."""
    ends = np.zeros(len(raw) + 1, np.int64)
    np.cumsum(_WIDTHS[raw], out=ends[1:])
    return ends


def spell_array(raw: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Bytes as the UTF-8 of their characters; ``ends``: what ``spelled_ends`` gives."""
    out = np.empty(ends[-1], np.uint8)
    out[ends[1:] - 1] = _LAST[raw]
    out[ends[:-1]] = _FIRST[raw]
    return out


def unspell_array(spelled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bytes, int64 [len(spelled) + 1]: how many of them the first bytes of ``spelled`` are)."""
    begins = (spelled & 0xC0) != 0x80
    ends = np.zeros(len(spelled) + 1, np.int64)
    np.cumsum(begins, out=ends[1:])
    at = np.flatnonzero(begins)
    codes = spelled[at].astype(np.int64)
    wide = codes >= 0x80
    codes[wide] = (codes[wide] & 0x1F) << 6 | (spelled[at[wide] + 1] & 0x3F)
    return _BYTE_AT[codes], ends
