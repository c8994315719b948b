"""What the tokens of a vocabulary are: what each one says, of which kind and script it is, and whose text it serves."""

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
SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil",
    "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar", "Khmer", "Georgian", "Armenian",
    "Ethiopic", "Hangul", "Hiragana", "Katakana", "Han", "Bopomofo", "Mongolian", "Thaana", "Syriac", "Cherokee",
    "Canadian_Aboriginal", "Tifinagh", "Nko", "Vai", "Ol_Chiki", "Javanese", "Balinese", "Sundanese", "Yi", "Adlam",
    "Runic", "Ogham", "Gothic", "Coptic", "Braille", "Tagalog", "Cham", "Meetei_Mayek", "Lisu", "Bamum", "Tai_Le",
    "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Syloti_Nagri", "Saurashtra", "Limbu", "Lepcha", "Buginese", "Batak",
    "other", "none",
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
        self.texts = said_texts(tokenizer)

    @cached_property
    def white_space(self) -> np.ndarray:
        """int64 [vocab_size]: the bytes of tokens that say white space alone, 0 for others."""
        return np.where(self.categories == _place("white space"), self.lengths, 0)

    def of(self, *categories: str) -> np.ndarray:
        """bool [vocab_size]: the tokens of these categories."""
        return np.isin(self.categories, [_place(category) for category in categories])

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 [vocab_size]: bytes of each token."""
        return np.fromiter(map(len, self.texts), np.int64, len(self.texts))

    @property
    def categories(self) -> np.ndarray:
        """int8 [vocab_size]: the place of each token's category in CATEGORIES."""
        return self._kinds[0]

    @property
    def scripts(self) -> np.ndarray:
        """int16 [vocab_size]: the place in SCRIPTS of the script that most of a token's letters have, of equals the one that
        comes first in it; "none" without letters."""
        return self._kinds[1]

    @cached_property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        n = len(self.texts)
        decoded = [_decoded(raw) for raw in self.texts]
        whole = np.array([text is not None for text in decoded])
        sizes = np.fromiter((0 if text is None else len(text) for text in decoded), np.int64, n)
        text = "".join(text for text in decoded if text)
        characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        kinds = _character_kinds()[characters]
        owners = np.repeat(np.arange(n), sizes)
        has = np.zeros((n, 5), bool)
        has[owners, kinds] = True
        signs = has[:, [_LETTER, _DIGIT, _SIGN, _OTHER]]
        several = signs.sum(axis=1)
        categories = np.select(
            [self.special, ~self.present | (self.lengths == 0), ~whole & (self.lengths == 1), ~whole, several > 1,
             has[:, _LETTER], has[:, _DIGIT], several == 1],
            [_place("special"), _place("unused ids"), _place("single bytes"), _place("partial characters"),
             _place("mixed"), _place("letters"), _place("digits"), _place("punctuation and symbols")],
            _place("white space"),
        )  # fmt: skip
        letters = kinds == _LETTER
        return categories.astype(np.int8), _majority(owners[letters], _script_places(text)[characters[letters]], n)

    def info(self, token_id: int, count: int) -> TokenInfo:
        raw = self.texts[token_id]
        return TokenInfo(text=readable(raw), bytes=raw.hex(), count=int(count))


def said_texts(tokenizer: Tokenizer) -> list[bytes]:
    """By id, what Said.texts has."""
    pieces = [piece or b"" for piece in tokenizer.model.pieces()]
    pieces += [b""] * (tokenizer.vocab_size - len(pieces))
    for token in tokenizer.added_tokens:
        pieces[token.id] = token.text.encode()
    special = {*tokenizer.special_tokens.values()}
    # A piece that stands for a byte says that byte, which decoding alone may not make text of.
    byte_ids = getattr(tokenizer.model, "byte_ids", None)
    fallback = set() if byte_ids is None else {i for i in byte_ids.tolist() if i >= 0}
    if tokenizer.decodes_by_pieces:
        if getattr(tokenizer.model, "alphabet", None) == "bytes":
            return pieces
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


def _decoded(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _place(category: str) -> int:
    return CATEGORIES.index(category)


def _script_places(text: str) -> np.ndarray:
    """int16 by code point: the place in SCRIPTS of what occurs in ``text``."""
    places = np.full(0x110000, SCRIPTS.index("other"), np.int16)
    occurring = "".join(sorted(set(text)))
    for place, name in enumerate(SCRIPTS[:-2]):
        for c in regex.findall(rf"\p{{Script={name}}}", occurring):
            places[ord(c)] = place
    return places


def _majority(owners: np.ndarray, scripts: np.ndarray, n: int) -> np.ndarray:
    """int16 [n]: of each token the script that most of its letters have. ``owners``: the token of each letter."""
    result = np.full(n, SCRIPTS.index("none"), np.int16)
    pairs, counts = np.unique(owners * len(SCRIPTS) + scripts, return_counts=True)
    tokens, scripts = pairs // len(SCRIPTS), pairs % len(SCRIPTS)
    order = np.lexsort((scripts, -counts, tokens))
    tokens, scripts = tokens[order], scripts[order]
    first = np.append(True, tokens[1:] != tokens[:-1])[: len(tokens)]
    result[tokens[first]] = scripts[first]
    return result


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
    categories = np.bincount(said.categories, minlength=len(CATEGORIES)).tolist()
    scripts = np.bincount(said.scripts[ordinary], minlength=len(SCRIPTS)).tolist()
    found = {name: n for name, n in zip(SCRIPTS, scripts, strict=True) if n}
    return Allocation(
        by_category={name: n for name, n in zip(CATEGORIES, categories, strict=True) if n},
        by_script=dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))),
        by_length={int(n): int(lengths[n]) for n in np.flatnonzero(lengths)},
        by_group={**dict(zip(names, owned[1:], strict=True)), UNUSED: owned[0]},
    )
