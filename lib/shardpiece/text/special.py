"""Special tokens in text: boundaries that are not counted when a tokenizer is trained; in encoding text like any other,
or tokens, or an error."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from shardpiece.errors import ConfigError, DocumentError
from shardpiece.kernel_cache import read_only
from shardpiece.text import special_kernels as k
from shardpiece.text import unicode_sets
from shardpiece.text.documents import Documents

IN_TEXT = ("text", "token", "error")
# A text of beginnings of tokens takes a step per byte of the longest one, at every byte.
LONGEST = 512


@dataclass(frozen=True)
class Cut:
    """``pieces``: what stands between special tokens, at least one piece per document; ``owners``: int64, the document
    each piece is of; ``tokens``: int64, the special token behind each piece (its place in the list), -1 for none."""

    pieces: Documents
    owners: np.ndarray
    tokens: np.ndarray

    @property
    def removed(self) -> int:
        """Number of special tokens found."""
        return int((self.tokens >= 0).sum())

    @property
    def at_start(self) -> np.ndarray | None:
        """Bool, whether a piece begins its document; None when all do."""
        if len(self.owners) == 0 or self.owners[-1] + 1 == len(self.owners):
            return None
        return np.diff(self.owners, prepend=-1) > 0


class TokenFinder:
    """Finds every place that spells one of some texts, the longest one there, from left to right in one pass over the
    bytes. Where two texts are the same, the first one is found."""

    def __init__(self, texts: Sequence[bytes]):
        self._byte_class = np.zeros(256, np.uint8)
        used = sorted(set(b"".join(texts)))
        self._byte_class[used] = np.arange(1, len(used) + 1)
        nodes: list[dict[int, int]] = [{}]
        token_at = [-1]
        for number, token in enumerate(texts):
            node = 0
            for b in token:
                if b not in nodes[node]:
                    nodes[node][b] = len(nodes)
                    nodes.append({})
                    token_at.append(-1)
                node = nodes[node][b]
            if token_at[node] < 0:
                token_at[node] = number
        self._children = np.full((len(nodes), len(used) + 1), -1, np.int32)
        for node, below in enumerate(nodes):
            for b, child in below.items():
                self._children[node, self._byte_class[b]] = child
        self._token_at = np.array(token_at, np.int32)
        self._firsts = np.array(sorted(nodes[0]), np.uint8)
        seconds = {b for node in nodes[0].values() for b in nodes[node]}
        if len(seconds) > k.MOST_COMPARED or any(len(token) == 1 for token in texts):
            seconds = set()
        self._seconds = np.array(sorted(seconds), np.uint8)

    def find(self, documents: Documents) -> np.ndarray:
        """int64 [4, n]: document, first byte, end and number of every text found, in order."""
        room = 1024 + documents.size // 64  # memory that is not written to costs nothing
        while len(self._firsts):
            found = np.empty((4, room), np.int64)
            n = k.find_tokens(
                read_only(documents.data), read_only(documents.offsets), self._firsts, self._seconds, self._byte_class,
                self._children, self._token_at, *found,
            )  # fmt: skip
            if n <= room:
                return np.ascontiguousarray(found[:, :n])
            room = n
        return np.empty((4, 0), np.int64)


def cut_documents(documents: Documents, found: np.ndarray, flags: np.ndarray) -> Cut:
    """Documents cut at what a TokenFinder has ``found``. ``flags``: uint8 for each token, what it asks of its
    surroundings (see ``special_kernels``)."""
    n = found.shape[1]
    if n == 0:
        return Cut(documents, np.arange(len(documents)), np.full(len(documents), -1))
    owners, starts, ends, behind = np.empty((4, len(documents) + n), np.int64)
    data = read_only(documents.data)
    pieces = k.settle_tokens(
        data, read_only(documents.offsets), *found, flags, _surroundings(), owners, starts, ends, behind
    )
    owners, starts, ends, behind = owners[:pieces], starts[:pieces], ends[:pieces], behind[:pieces]
    if pieces == len(documents):
        return Cut(documents, owners, behind)
    out, offsets = np.empty(int((ends - starts).sum()), np.uint8), np.zeros(pieces + 1, np.int64)
    k.copy_pieces(data, starts, ends, out, offsets)
    out.flags.writeable = offsets.flags.writeable = False  # kernels are compiled for read-only text
    return Cut(Documents(out, offsets), owners, behind)


@cache
def _surroundings() -> np.ndarray:
    """uint8 over the code points: white space, characters of words, others."""
    class_of = np.zeros(unicode_sets.CODE_POINTS, np.uint8)
    class_of[unicode_sets.frozen("word")] = k.WORD
    class_of[unicode_sets.frozen("space")] = k.SPACE
    return class_of


class SpecialTokenCutter:
    """Cuts documents at every place that spells a special token, the longest one there."""

    def __init__(self, tokens: Sequence[str]):
        self.tokens = tuple(tokens)
        spelled = [token.encode() for token in self.tokens]
        if any(len(token) > LONGEST for token in spelled):
            raise ConfigError(f"a special token has more than {LONGEST} bytes")
        self._finder = TokenFinder(spelled)
        self._flags = np.zeros(len(spelled), np.uint8)

    def cut(self, documents: Documents) -> Cut:
        return cut_documents(documents, self._finder.find(documents), self._flags)

    def refuse(self, documents: Documents) -> None:
        """Raises DocumentError for the first document that spells a special token."""
        found = self._finder.find(documents)
        if found.shape[1]:
            d, start, _, token = found[:, 0].tolist()
            raise refusal(d, self.tokens[token], start - int(documents.offsets[d]))


def refusal(d: int, token: str, byte: int | None = None) -> DocumentError:
    """The error for document ``d``, which spells a token at a byte of it, or somewhere once it is normalized."""
    place = "once it is normalized" if byte is None else f"at byte {byte}"
    return DocumentError(d, f"the text spells the special token {token!r} {place} (special_tokens_in_text: error)")
