"""subword-nmt's codes: a merge per line, over characters, ``</w>`` behind the last one of a word (Sennrich et al. 2016).

As ``subword-nmt apply-bpe`` of version 0.3.8 segments: words are what stands between spaces and line ends, all else is part of
a word. The format has no ids. They are given here: 0 is ``<unk>``; then every character of the codes in order of code
points, each as it is inside a word and at its end; then what the merges make, in their order. A character that is in no code
goes through apply-bpe as it is, and is ``<unk>`` here, one for each.

The tokens that apply-bpe writes, ``low@@ er``, are those of ``segmented``.
"""

import re
from collections.abc import Iterable

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.bpe import CHARACTERS, BPEModel
from shardpiece.tokenizer.formats import companions
from shardpiece.tokenizer.formats.gpt2_files import END_OF_WORD, read_merges
from shardpiece.tokenizer.tokenizer import Tokenizer

UNKNOWN = "<unk>"
SEPARATOR = "@@"
HEADER = "#version: 0.2"
PRETOKENIZER = {"type": "split", "pattern": r"[ \r\n]+", "behavior": "removed"}


def is_codes(raw: bytes) -> bool:
    """Whether it has subword-nmt's header or two tokens a line, and ends of words."""
    head = raw[:100_000]
    lines = head.split(b"\n")[:-1] or [head]
    pairs = [line for line in lines if not line.startswith(b"#version")]
    return (
        bool(pairs) and all(line.rstrip(b"\r").count(b" ") in (1, 2) for line in pairs) and END_OF_WORD.encode() in head
    )


def read_codes(raw: bytes, source: str) -> Tokenizer:
    """Raises FormatError naming the line that cannot be read exactly."""
    first = raw[:200].split(b"\n", 1)[0].strip().decode("utf-8", "replace")
    if re.fullmatch(r"\S+ \S+ \d+", first):
        raise FormatError(f"{source}: three columns, as fastBPE writes codes; those of subword-nmt are read alone")
    version = first.split()[-1] if first.startswith("#version:") else "0.1"
    if re.sub(r"(\.0+)*$", "", version) != "0.2":
        raise FormatError(
            f"{source}: codes of version {version} (a file of version 0.2 begins with {HEADER!r}): these mark ends of words in "
            f"another way and are not read"
        )
    pairs = read_merges(raw, source)
    if not pairs:
        raise FormatError(f"{source}: no merges in this file")
    made = _checked(pairs, source)
    characters = sorted({part.removesuffix(END_OF_WORD) for pair in pairs for part in pair if part not in made})
    texts = [UNKNOWN, *(c + mark for c in characters for mark in ("", END_OF_WORD)), *made]
    ids = {text: i for i, text in enumerate(texts)}
    merges = np.array([[ids[a], ids[b]] for a, b in pairs], np.int32)
    vocab = [None, *(text.encode() for text in texts[1:])]
    try:
        model = BPEModel(vocab, merges, CHARACTERS, suffix=END_OF_WORD.encode(), unk_id=0, fuse_unk=False)
        return Tokenizer(TextEngine(PRETOKENIZER), model, {UNKNOWN: 0})
    except FormatError as error:
        raise FormatError(f"{source}: {error}") from None


def _checked(pairs: Iterable[tuple[str, str]], source: str) -> dict[str, None]:
    """What the merges make, in order. A part is one character or what an earlier merge made, else apply-bpe's order of
    merging is another than that of the list."""
    made: dict[str, None] = {}
    for number, (a, b) in enumerate(pairs, 1):
        if a.endswith(END_OF_WORD) or b == END_OF_WORD or (
            (a + b).endswith(END_OF_WORD) and not b.endswith(END_OF_WORD)
        ):  # fmt: skip
            raise FormatError(
                f"{source}, merge {number} ({a} {b}): {END_OF_WORD} is not at the end of a word's last character"
            )
        for part in (a, b):
            if part not in made and len(part.removesuffix(END_OF_WORD)) != 1:
                raise FormatError(f"{source}, merge {number} ({a} {b}): no merge before it makes {part!r}")
        made[a + b] = None
    return made


def segmented(tokenizer: Tokenizer, ids: Iterable[int], separator: str = SEPARATOR) -> str:
    """The text of ids as apply-bpe writes it: tokens with spaces between them, ``separator`` behind those that do not end a
    word. Unknown characters are ``<unk>``, which ends a word or not as what it stands for cannot be told."""
    end = tokenizer.model.suffix
    tokens = []
    for i in ids:
        piece = tokenizer.token_bytes(i)
        whole = piece.endswith(end) or i == tokenizer.model.unk_id
        tokens.append((piece.removesuffix(end) if whole else piece + separator.encode()).decode())
    return " ".join(tokens)


# --- writing --------------------------------------------------------------------------------------------------------


def problem(tokenizer: Tokenizer) -> str | None:
    """Why codes cannot say how this tokenizer segments; None when they can. Ids are never part of them."""
    model = tokenizer.model
    if model.kind != "bpe" or model.alphabet != CHARACTERS or model.suffix != END_OF_WORD.encode() or model.prefix:
        return f"subword-nmt has BPE over characters with {END_OF_WORD} at the end of words alone"
    if model.byte_fallback or model.ignore_merges:
        return "subword-nmt has neither bytes for unknown characters nor words that are tokens without merges (ignore_merges)"
    if tokenizer.engine.fingerprint != TextEngine(PRETOKENIZER).fingerprint:
        return (
            f"subword-nmt splits at spaces and line ends alone ({PRETOKENIZER}), and this tokenizer has "
            f"{tokenizer.engine.name}"
        )
    if (reason := companions.added_problem(tokenizer.added_tokens, "subword-nmt", flags=False)) is not None:
        return reason
    try:
        pairs = _pairs(tokenizer)
        if any(re.search(r"[ \r\n]", a + b) for a, b in pairs):
            return "a token has a space or a line end in it"
        if len(set(pairs)) != len(pairs):
            return "a merge is there twice"
        _checked(pairs, "the merges")
    except FormatError as error:
        return str(error)
    return None


def _pairs(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    vocab = tokenizer.model.vocab
    return [(vocab[a].decode(), vocab[b].decode()) for a, b in tokenizer.model.merges.tolist()]


def to_bytes(tokenizer: Tokenizer) -> bytes:
    """The content of the codes file. Raises FormatError naming what it cannot say."""
    if (reason := problem(tokenizer)) is not None:
        raise FormatError(reason)
    return "".join([f"{HEADER}\n", *(f"{a} {b}\n" for a, b in _pairs(tokenizer))]).encode()
