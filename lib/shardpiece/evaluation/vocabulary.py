"""What the tokens of a vocabulary are: what each one says, of which kind and script it is, and whose text it serves."""

from collections import Counter
from functools import cached_property

import numpy as np
import regex

from shardpiece.errors import ShardpieceError
from shardpiece.evaluation.schema import Allocation, TokenInfo
from shardpiece.evaluation.tally import TokenTally
from shardpiece.text.unicode_sets import frozen
from shardpiece.tokenizer.pieces import readable
from shardpiece.tokenizer.tokenizer import Tokenizer

UNUSED = "unused"
CATEGORIES = (
    "letters", "digits", "punctuation and symbols", "white space", "mixed", "single bytes", "partial characters",
    "special", "unused ids",
)  # fmt: skip
_SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil",
    "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar", "Khmer", "Georgian", "Armenian",
    "Ethiopic", "Hangul", "Hiragana", "Katakana", "Han", "Bopomofo", "Mongolian", "Thaana", "Syriac", "Cherokee",
    "Canadian_Aboriginal", "Tifinagh", "Nko", "Vai", "Ol_Chiki", "Javanese", "Balinese", "Sundanese", "Yi", "Adlam",
    "Runic", "Ogham", "Gothic", "Coptic", "Braille", "Tagalog", "Cham", "Meetei_Mayek", "Lisu", "Bamum", "Tai_Le",
    "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Syloti_Nagri", "Saurashtra", "Limbu", "Lepcha", "Buginese", "Batak",
)  # fmt: skip
_LETTER, _DIGIT, _SPACE, _SIGN, _OTHER = range(5)


class Said:
    """What the tokens of a tokenizer say.

    ``texts``: by id the bytes that the token adds to a text after another token (``▁the`` and ``Ġthe`` " the", ``##ing``
    "ing"); special tokens their text; b"" where an id is no token. ``ordinary``: bool [vocab_size], tokens that text can
    become: neither special nor unused ids, nor the unknown token.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        n = tokenizer.vocab_size
        present = np.zeros(n, bool)
        vocab = tokenizer.model.vocab
        present[: len(vocab)] = [piece is not None for piece in vocab]
        special = list(tokenizer.special_tokens.values())
        self.special = np.zeros(n, bool)
        self.special[special] = True
        for token in tokenizer.added_tokens:
            present[token.id] = True
        self.ordinary = present & ~self.special
        if tokenizer.model.unk_id is not None:
            self.ordinary[tokenizer.model.unk_id] = False
        self.present = present
        self.texts = _texts(tokenizer, present)

    @cached_property
    def white_space(self) -> np.ndarray:
        """int64 [vocab_size]: the bytes of tokens that say white space alone, 0 for others."""
        found = np.zeros(len(self.texts), np.int64)
        for i, kind in enumerate(self.categories):
            if kind == "white space":
                found[i] = len(self.texts[i])
        return found

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 [vocab_size]: bytes of each token."""
        return np.fromiter(map(len, self.texts), np.int64, len(self.texts))

    @cached_property
    def _letters_first(self) -> tuple[list[str], list[str]]:
        """(category of each token, script of each token), see CATEGORIES."""
        kinds, names = _character_kinds(), self._script_of
        categories, scripts = [], []
        for i, raw in enumerate(self.texts):
            script = "none"
            if self.special[i]:
                category = "special"
            elif not self.present[i]:
                category = "unused ids"
            else:
                category, script = _classify(raw, kinds, names)
            categories.append(category)
            scripts.append(script)
        return categories, scripts

    @property
    def categories(self) -> list[str]:
        return self._letters_first[0]

    @property
    def scripts(self) -> list[str]:
        """The script of most of a token's letters, of equals the first; "none" without letters."""
        return self._letters_first[1]

    @cached_property
    def _script_of(self) -> dict[str, str]:
        text = "".join(sorted(set(b"\n".join(self.texts).decode(errors="ignore"))))
        return {c: name for name in _SCRIPTS for c in regex.findall(rf"\p{{Script={name}}}", text)}

    def info(self, token_id: int, count: int) -> TokenInfo:
        raw = self.texts[token_id]
        return TokenInfo(text=readable(raw), bytes=raw.hex(), count=int(count))


def _texts(tokenizer: Tokenizer, present: np.ndarray) -> list[bytes]:
    pieces = [piece or b"" for piece in tokenizer.model.pieces()]
    pieces += [b""] * (len(present) - len(pieces))
    for token in tokenizer.added_tokens:
        pieces[token.id] = token.text.encode()
    special = {*tokenizer.special_tokens.values()}
    fallback = {int(i) for i in np.ravel(getattr(tokenizer.model, "byte_ids", ())) if i >= 0}
    if tokenizer.decodes_by_pieces:
        before: list[int] = []
    else:
        # A word's first token and the others are told apart by what decoding puts between them.
        ids = {piece: i for i, piece in reversed([*enumerate(tokenizer.model.vocab)]) if piece}
        anchor = next((ids[name] for name in (b"a", "▁a".encode(), b"a</w>") if name in ids), None)
        if anchor is None:
            return pieces
        before = [anchor]
    start = tokenizer.decode_bytes(before)
    texts = []
    for i, piece in enumerate(pieces):
        if piece and i not in special and i not in fallback:
            try:
                said = tokenizer.decode_bytes([*before, i])
                if said.startswith(start) and len(said) > len(start):
                    piece = said[len(start) :]
            except ShardpieceError:
                pass
        texts.append(piece)
    return texts


def _character_kinds() -> np.ndarray:
    """uint8 by code point: which of five kinds it is."""
    kinds = np.full(0x110000, _OTHER, np.uint8)
    for kind, names in (
        (_LETTER, ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me")),
        (_DIGIT, ("Nd", "Nl", "No")),
        (_SIGN, ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So")),
        (_SPACE, ("space",)),
    ):
        for name in names:
            kinds[frozen(name)] = kind
    return kinds


def _classify(raw: bytes, kinds: np.ndarray, script_of: dict[str, str]) -> tuple[str, str]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return ("single bytes" if len(raw) == 1 else "partial characters"), "none"
    found = [int(kinds[ord(c)]) for c in text]
    present = {kind for kind in found if kind != _SPACE}
    if not present:
        category = "white space" if found else "unused ids"
    elif len(present) > 1:
        category = "mixed"
    else:
        [kind] = present
        category = {_LETTER: "letters", _DIGIT: "digits"}.get(kind, "punctuation and symbols")
    names = [script_of.get(c, "other") for c, kind in zip(text, found, strict=True) if kind == _LETTER]
    return category, Counter(names).most_common(1)[0][0] if names else "none"


def serves(tally: TokenTally) -> tuple[np.ndarray, list[str]]:
    """(int32 [vocab_size], the names): the number of the group in whose text the token's relative frequency, count / tokens of
    the group, is highest (of equals the first name), -1 for tokens that no text has."""
    names = sorted(tally.sums)
    best, owner = np.zeros(tally.vocab_size), np.full(tally.vocab_size, -1, np.int32)
    for number, name in enumerate(names):
        ids, counts = tally.counts(name)
        if len(ids):
            share = counts / counts.sum()
            better = share > best[ids]
            best[ids[better]], owner[ids[better]] = share[better], number
    return owner, names


def allocation(said: Said, tally: TokenTally) -> Allocation:
    owner, names = serves(tally)
    ordinary = np.flatnonzero(said.ordinary)
    owned = np.bincount(owner[ordinary] + 1, minlength=len(names) + 1).tolist()
    lengths = np.bincount(said.lengths[ordinary])
    categories, scripts = Counter(said.categories), Counter(said.scripts[i] for i in ordinary.tolist())
    return Allocation(
        by_category={name: categories[name] for name in CATEGORIES if categories[name]},
        by_script=dict(sorted(scripts.items(), key=lambda item: (-item[1], item[0]))),
        by_length={int(n): int(lengths[n]) for n in np.flatnonzero(lengths)},
        by_group={**dict(zip(names, owned[1:], strict=True)), UNUSED: owned[0]},
    )
