"""Tokens of a text as pages show them: what each one says, made visible, and which of them share a character."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardpiece.tokenizer.pieces import readable_parts
from shardpiece.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Shared:
    """Tokens ``first`` to ``last`` have parts of the one character ``character``: a byte-level token need not be whole
    characters."""

    first: int
    last: int
    character: str


def token_bytes_in(tokenizer: Tokenizer, ids: Sequence[int], raw: bytes) -> tuple[list[bytes], bool]:
    """What each token says, and whether these are the text ``raw`` itself, put together.

    Where a decoder joins bytes, they are what decoding the token alone gives. Else (SentencePiece, WordPiece, Unigram) there
    are no places in the text: the pieces as the model spells them, ``▁the`` and ``##ing``.
    """
    distinct = sorted(set(ids))
    if tokenizer.decodes_by_pieces:
        said = {i: tokenizer.decode_bytes([i]) for i in distinct}
        spoken = [said[i] for i in ids]
        if b"".join(spoken) == raw:
            return spoken, True
    said = {i: tokenizer.token_bytes(i) for i in distinct}
    return [said[i] for i in ids], False


def shared_characters(tokens: Sequence[bytes]) -> list[Shared]:
    """The characters of which two or more neighbouring tokens have a part each, in order. Two neighbouring characters that
    share a token are two entries."""
    raw = b"".join(tokens)
    found: list[Shared] = []
    start, tail = 0, 0
    for i, token in enumerate(tokens):
        # The boundary before token i lies inside a character when a continuation byte follows it. A character that was
        # found already, cut once more, is not found again.
        if start < len(raw) and token and raw[start] & 0xC0 == 0x80 and start >= tail:
            lead = start - 1
            while lead > start - 4 and lead >= 0 and raw[lead] & 0xC0 == 0x80:
                lead -= 1
            size = _size(raw[lead]) if lead >= 0 else 0
            character = raw[lead : lead + size].decode("utf-8", "replace") if size else ""
            if len(character) == 1 and character != "\ufffd":
                tail = lead + size
                found.append(Shared(_owner(tokens, i, start, lead), _last(tokens, i, start, tail), character))
        start += len(token)
    return found


def _size(lead: int) -> int:
    return 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0


def _owner(tokens: Sequence[bytes], i: int, start: int, place: int) -> int:
    """The token before ``i``, which begins at ``start``, that has the byte at ``place``."""
    while start > place:
        i -= 1
        start -= len(tokens[i])
    return i


def _last(tokens: Sequence[bytes], i: int, start: int, end: int) -> int:
    """The token from ``i`` on, which begins at ``start``, that has the byte before ``end``."""
    while start + len(tokens[i]) < end:
        start += len(tokens[i])
        i += 1
    return i


def strip(ids: Iterable[int], tokens: Sequence[bytes]) -> dict:
    """Tokens for ``tokens.js``, each distinct one once.

    {"pieces": [[id, hex of the bytes, [[text, 1 for a symbol else 0], ...]], ...], "tokens": [index into pieces, ...],
    "shared": [[first, last, character], ...]}
    """
    index: dict[tuple[int, bytes], int] = {}
    order = [index.setdefault(pair, len(index)) for pair in zip(ids, tokens, strict=True)]
    return {
        "pieces": [
            [int(i), raw.hex(), [[text, int(symbol)] for text, symbol in readable_parts(raw)]] for i, raw in index
        ],
        "tokens": order,
        "shared": [[shared.first, shared.last, shared.character] for shared in shared_characters(tokens)],
    }
