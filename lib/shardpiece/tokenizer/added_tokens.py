"""Tokens beside the model: special ones, and others that text is cut at before the model sees it, found as the
AddedVocabulary of Hugging Face's tokenizers finds them.

There are two passes. The texts of tokens that are not ``normalized`` are searched in a document as it is. What stands
between them is normalized, and the texts of the others, normalized too, are searched there. In each pass the longest
token that begins leftmost is found, then the next behind it; one that does not stand alone (``single_word``), or that is
special where special tokens are ordinary text, is passed over with all the text it spells.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np

from shardpiece.errors import ConfigError, DocumentError, FormatError
from shardpiece.text import special_kernels as k
from shardpiece.text.documents import Documents
from shardpiece.text.normalizers import Normalizer
from shardpiece.text.special import LONGEST, Cut, TokenFinder, cut_documents, refusal


@dataclass(frozen=True)
class AddedToken:
    """``special``: found only where special tokens in text are tokens, and left out of decoded text on request.
    ``lstrip``, ``rstrip``: takes the white space before or behind it along. ``single_word``: only where no letter, digit
    or the like stands beside it. ``normalized``: searched in normalized text."""

    text: str
    id: int
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False

    def __post_init__(self):
        check_text(self.text)
        if type(self.id) is not int or not 0 <= self.id < 2**31:
            raise FormatError(f"the added token {self.text!r} has the id {self.id!r}, which is no id")
        for field in fields(self)[2:]:
            if type(getattr(self, field.name)) is not bool:
                raise FormatError(f"the added token {self.text!r}: {field.name} is true or false")

    @property
    def spec(self) -> dict:
        return asdict(self)

    @classmethod
    def from_spec(cls, spec: dict) -> "AddedToken":
        """Raises FormatError for a damaged one."""
        if not isinstance(spec, dict) or set(spec) != {field.name for field in fields(cls)}:
            raise FormatError(f"the added token {spec!r:.80} is damaged")
        return cls(**spec)


def check_text(token: str) -> None:
    """Raises ConfigError for what cannot be the text of a token."""
    if not isinstance(token, str) or not token or any("\ud800" <= c <= "\udfff" for c in token):
        raise ConfigError(f"special token {token!a} is no text")
    if len(token.encode()) > LONGEST:
        raise ConfigError(f"special token {token[:40]!r}... has more than {LONGEST} bytes")


def check_special_tokens(tokens: Iterable[str]) -> tuple[str, ...]:
    """Raises ConfigError for what cannot be special tokens."""
    tokens = tuple(tokens)
    for token in tokens:
        check_text(token)
    if len(set(tokens)) != len(tokens):
        raise ConfigError(f"a special token is listed twice: {', '.join(tokens)}")
    return tokens


class _Pass:
    """One search for ``tokens`` by their ``texts``."""

    def __init__(self, tokens: Sequence[AddedToken], texts: Sequence[bytes]):
        self.tokens = tokens
        self.ids = np.array([token.id for token in tokens], np.int32)
        self.special = np.array([token.special for token in tokens], bool)
        self._finder = TokenFinder(texts)
        self._flags = np.array(
            [k.SINGLE_WORD * t.single_word | k.LEFT_STRIP * t.lstrip | k.RIGHT_STRIP * t.rstrip for t in tokens],
            np.uint8,
        )
        self._ordinary_flags = np.where(self.special, k.IGNORED, self._flags).astype(np.uint8)

    def cut(self, documents: Documents, special: bool) -> Cut:
        """Cut at all tokens, or, without ``special``, at those that are not."""
        if not special and self.special.all():
            return Cut(documents, np.arange(len(documents)), np.full(len(documents), -1))
        found = self._finder.find(documents)
        return cut_documents(documents, found, self._flags if special else self._ordinary_flags)

    def ids_behind(self, cut: Cut) -> np.ndarray:
        """The id behind each piece, -1 for none."""
        return np.append(self.ids, np.int32(-1))[cut.tokens]

    def refuse(self, cut: Cut, documents: Documents | None, owners: np.ndarray | None = None) -> None:
        """Raises DocumentError when there is a special token in ``cut``."""
        where = np.flatnonzero((cut.tokens >= 0) & np.append(self.special, False)[cut.tokens])
        if len(where):
            p = int(where[0])
            d = int(cut.owners[p])
            token = self.tokens[cut.tokens[p]].text
            byte = None if documents is None else documents.text(d).encode().find(token.encode())
            raise refusal(d if owners is None else int(owners[d]), token, byte)


class AddedTokenCutter:
    """Cuts documents at added tokens and normalizes what stands between them."""

    def __init__(self, tokens: Sequence[AddedToken], normalizer: Normalizer | None):
        self._normalizer = normalizer
        # Of tokens that a normalizer makes equal, the first one is found; there, special ones come first.
        tokens = sorted(tokens, key=lambda token: (not token.special, token.id))
        plain = [token for token in tokens if not token.normalized]
        normal = [token for token in tokens if token.normalized]
        self._plain = _Pass(plain, [token.text.encode() for token in plain])
        # A normalizer leaves symbols alone that it was made to keep, but puts its prefix before them.
        kept = () if normalizer is None else normalizer.kept_symbols
        texts = [
            token.text if normalizer is None or token.text in kept else normalizer.normalize_text(token.text)
            for token in normal
        ]
        if "" in texts:
            token = normal[texts.index("")].text
            raise FormatError(
                f"the added token {token!r} is searched in normalized text, and nothing is left of it there"
            )
        self._normal = _Pass(normal, [text.encode() for text in texts])
        self.any_ordinary = not all(token.special for token in tokens)

    def cut(self, documents: Documents, special: bool, refuse: bool = False) -> Cut:
        """The pieces between tokens, normalized; the ``tokens`` of this cut are ids. ``special``: whether special tokens
        are tokens; with ``refuse``, one raises DocumentError."""
        first = self.cut_plain(documents, special, refuse)
        pieces = first.pieces
        if self._normalizer is not None:
            try:
                pieces = self._normalizer.normalize(pieces)
            except DocumentError as error:
                raise DocumentError(int(first.owners[error.index]), error.problem) from None
        second = self.cut_normalized(pieces, special, refuse, first.owners)
        ids = np.where(second.tokens < 0, first.tokens[second.owners], second.tokens)
        return Cut(second.pieces, first.owners[second.owners], ids)

    def cut_plain(self, documents: Documents, special: bool, refuse: bool = False) -> Cut:
        """As ``cut``, at the tokens alone that are searched in documents as they are; the pieces are as they are."""
        cut = self._plain.cut(documents, special)
        if refuse:
            self._plain.refuse(cut, documents)
        return Cut(cut.pieces, cut.owners, self._plain.ids_behind(cut))

    def cut_normalized(
        self, pieces: Documents, special: bool, refuse: bool = False, owners: np.ndarray | None = None
    ) -> Cut:
        """The pieces of such a cut, once they are normalized, cut at the other tokens. ``owners``: the document each one is
        of."""
        if not self._normal.tokens:
            return Cut(pieces, np.arange(len(pieces)), np.full(len(pieces), -1))
        cut = self._normal.cut(pieces, special)
        if refuse:
            self._normal.refuse(cut, None, owners)
        return Cut(cut.pieces, cut.owners, self._normal.ids_behind(cut))
