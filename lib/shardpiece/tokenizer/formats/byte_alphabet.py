"""The byte-level alphabet of GPT-2, in which ``tokenizer.json`` spells the tokens of byte-level models.

Printable bytes stand for themselves, the other 68 are shifted to U+0100 and up, in order.
"""

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
