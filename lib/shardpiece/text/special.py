"""Special tokens in text: boundaries that are not counted when a tokenizer is trained; in encoding text like any other,
or tokens, or an error."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardpiece.errors import ConfigError, DocumentError
from shardpiece.text import special_kernels as k
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


class SpecialTokenCutter:
    """Cuts documents at every place that spells a special token, the longest one there, in one pass over the bytes."""

    def __init__(self, tokens: Sequence[str]):
        self.tokens = tuple(tokens)
        spelled = [token.encode() for token in self.tokens]
        if any(len(token) > LONGEST for token in spelled):
            raise ConfigError(f"a special token has more than {LONGEST} bytes")
        self._byte_class = np.zeros(256, np.uint8)
        used = sorted(set(b"".join(spelled)))
        self._byte_class[used] = np.arange(1, len(used) + 1)
        nodes: list[dict[int, int]] = [{}]
        token_at = [-1]
        for number, token in enumerate(spelled):
            node = 0
            for b in token:
                if b not in nodes[node]:
                    nodes[node][b] = len(nodes)
                    nodes.append({})
                    token_at.append(-1)
                node = nodes[node][b]
            token_at[node] = number
        self._children = np.full((len(nodes), len(used) + 1), -1, np.int32)
        for node, below in enumerate(nodes):
            for b, child in below.items():
                self._children[node, self._byte_class[b]] = child
        self._token_at = np.array(token_at, np.int32)

    def find(self, documents: Documents) -> np.ndarray:
        """int64 [4, n]: document, first byte, end and token of every occurrence, in order."""
        room = 1024
        while self.tokens:
            found = np.empty((4, room), np.int64)
            n = k.find_tokens(
                documents.data, documents.offsets, self._byte_class, self._children, self._token_at, *found
            )
            if n <= room:
                return found[:, :n]
            room = n
        return np.empty((4, 0), np.int64)

    def cut(self, documents: Documents) -> Cut:
        found = self.find(documents)
        n = found.shape[1]
        if n == 0:
            return Cut(documents, np.arange(len(documents)), np.full(len(documents), -1))
        owner, starts, ends, tokens = np.ascontiguousarray(found)
        out = np.empty(documents.size - int((ends - starts).sum()), np.uint8)
        offsets, owners = np.zeros(len(documents) + n + 1, np.int64), np.empty(len(documents) + n, np.int64)
        k.cut_pieces(documents.data, documents.offsets, owner, starts, ends, out, offsets, owners)
        out.flags.writeable = offsets.flags.writeable = False  # kernels are compiled for read-only text
        behind = np.full(len(owners), -1)
        behind[np.arange(n) + owner] = tokens
        return Cut(Documents(out, offsets), owners, behind)

    def refuse(self, documents: Documents) -> None:
        """Raises DocumentError for the first document that spells a special token."""
        found = self.find(documents)
        if found.shape[1]:
            d, start, _, token = found[:, 0].tolist()
            raise DocumentError(
                d,
                f"the text spells the special token {self.tokens[token]!r} at byte {start - int(documents.offsets[d])} "
                f"(special_tokens_in_text: error)",
            )
