"""Texts cut by a tokenizer, to be looked at: samples of the corpus and the user's terms."""

from collections.abc import Sequence
from itertools import pairwise

from shardpiece.evaluation.schema import Cut, Probe, SampleTokens
from shardpiece.evaluation.vocabulary import Said
from shardpiece.text.documents import Documents
from shardpiece.tokenizer.pieces import readable
from shardpiece.tokenizer.tokenizer import Tokenizer


def after_line_end(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The tokens of texts that stand after a line end, without those of the line end."""
    before = tokenizer.encode("\n")
    tokens, offsets = tokenizer.encode_documents(Documents.from_strings(["\n" + text for text in texts]))
    found = [tokens[a:b].tolist() for a, b in pairwise(offsets.tolist())]
    return [ids[len(before) :] if ids[: len(before)] == before else ids for ids in found]


def spans(said: Said, raw: bytes, ids: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """(id, start, end) of every token in the bytes of its text; None where the tokens do not say the text one after the other.
    A space that a tokenizer puts before a text has no place in it."""
    found, place = [], 0
    for n, i in enumerate(ids):
        piece = said.texts[i]
        if n == 0 and piece.startswith(b" ") and not raw.startswith(b" "):
            piece = piece[1:]
        if raw[place : place + len(piece)] != piece:
            return None
        found.append((int(i), place, place + len(piece)))
        place += len(piece)
    return found if place == len(raw) else None


def sample_tokens(said: Said, text: str) -> SampleTokens:
    ids = said.tokenizer.encode(text)
    return SampleTokens(
        ids=ids, pieces=[readable(said.texts[i]) for i in ids], spans=spans(said, text.encode(errors="replace"), ids)
    )


def _cut(said: Said, ids: list[int]) -> Cut:
    return Cut(ids=ids, pieces=[readable(said.texts[i]) for i in ids])


def probe(said: Said, text: str) -> Probe:
    """``text`` at the start of a text, and after a line end and a space."""
    ids = said.tokenizer.encode(text)
    return Probe(
        text=text,
        alone=_cut(said, ids),
        after_space=_cut(said, after_line_end(said.tokenizer, [" " + text])[0]),
        round_trip=said.tokenizer.decode_bytes(ids) == text.encode(errors="replace"),
    )
