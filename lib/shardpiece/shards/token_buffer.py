"""The documents of one batch on their way into a shard: ids in the shard's own type, written there once."""

import numpy as np

from shardpiece.errors import ShardpieceError
from shardpiece.kernel_cache import read_only
from shardpiece.shards.append_kernels import append_documents


class TokenBuffer:
    """``dtype``: what the shard's ids are. ``before``, ``after``: ids around every document. Without ``keep_empty``,
    documents without text are left out. ``documents``, ``size``: how many documents are to come, and about how many bytes
    of text they have."""

    def __init__(
        self,
        dtype: np.dtype,
        vocab_size: int,
        before: tuple[int, ...],
        after: tuple[int, ...],
        keep_empty: bool,
        documents: int,
        size: int,
    ):
        self._vocab_size = vocab_size
        self._before = read_only(np.array(before, np.int32))
        self._after = read_only(np.array(after, np.int32))
        self._keep_empty = keep_empty
        self._tokens = np.empty(size // 3 + 64, dtype)
        self._offsets = np.zeros(documents + 1, np.int64)
        self._at = self._documents = 0

    def add(self, tokens: np.ndarray, offsets: np.ndarray, text_offsets: np.ndarray) -> None:
        """Add documents: tokens int32, offsets int64 [n + 1] into them; ``text_offsets``: int64 [n + 1], where their texts
        lie. Raises ShardpieceError for an id outside the vocabulary."""
        needed = self._at + len(tokens) + (len(offsets) - 1) * (len(self._before) + len(self._after))
        if needed > len(self._tokens):
            grown = np.empty(max(needed, len(self._tokens) * 3 // 2), self._tokens.dtype)
            grown[: self._at] = self._tokens[: self._at]
            self._tokens = grown
        at, documents = append_documents(
            read_only(tokens), read_only(offsets), read_only(text_offsets), self._keep_empty, self._before, self._after,
            self._vocab_size, self._tokens, self._at, self._offsets[1:], self._documents,
        )  # fmt: skip
        if at < 0:
            raise ShardpieceError(
                f"the token id {documents}, outside the vocabulary of {self._vocab_size}, was about to be written"
            )
        self._at, self._documents = at, documents

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        """(tokens of the shard's type, offsets int64 [documents + 1]) of all that was added."""
        return self._tokens[: self._at], self._offsets[: self._documents + 1]
