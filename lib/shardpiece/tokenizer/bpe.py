"""The byte-level BPE model: its vocabulary and merges, and the tables its encoder runs on."""

from dataclasses import dataclass, field

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.text.documents import Words
from shardpiece.tokenizer import encode_kernels as k


@dataclass(frozen=True)
class BPEModel:
    """``vocab``: the byte string of each id, dense from 0; every single byte is among them. ``merges``: int32 [m, 2],
    pairs of ids in order of priority. Raises FormatError for a vocabulary that merges cannot work on."""

    vocab: tuple[bytes, ...]
    merges: np.ndarray
    merged: np.ndarray = field(init=False, repr=False)
    byte_ids: np.ndarray = field(init=False, repr=False)

    def __post_init__(self):
        ids: dict[bytes, int] = {}
        for i, token in enumerate(self.vocab):
            if token in ids:
                raise FormatError(f"tokens {ids[token]} and {i} are the same byte string {token!r}")
            ids[token] = i
        missing = [b for b in range(256) if bytes([b]) not in ids]
        if missing:
            raise FormatError(f"the vocabulary lacks the single bytes {missing[:8]}: it is not a byte-level BPE")
        merges = np.ascontiguousarray(self.merges, np.int32).reshape(-1, 2)
        if len(merges) and (merges.min() < 0 or merges.max() >= len(self.vocab)):
            raise FormatError("a merge names an id outside the vocabulary")
        merged = np.empty(len(merges), np.int32)
        for r, (a, b) in enumerate(merges.tolist()):
            joined = self.vocab[a] + self.vocab[b]
            if joined not in ids:
                raise FormatError(f"merge {r} gives {joined!r}, which is not in the vocabulary")
            merged[r] = ids[joined]
        object.__setattr__(self, "merges", merges)
        object.__setattr__(self, "merged", merged)
        object.__setattr__(self, "byte_ids", np.array([ids[bytes([b])] for b in range(256)], np.int32))

    def __len__(self) -> int:
        return len(self.vocab)


class BPEEncoder:
    """Encodes words with a model; keeps a word cache of about ``cache_bytes``. One per thread."""

    def __init__(self, model: BPEModel, cache_bytes: int = 64 << 20):
        self._byte_ids = model.byte_ids
        self._merged = model.merged
        size = 1 << max(4, (2 * len(model.merges)).bit_length())
        self._pairs = np.zeros((size, 2), np.uint64)
        left, right = model.merges.T.copy()
        k.fill_pairs(left, right, self._pairs)
        self._byte_pairs = np.full(65536, k.NO_RANK, np.int32)
        byte_of = {int(i): b for b, i in enumerate(model.byte_ids)}
        for r, (a, b) in enumerate(model.merges.tolist()):
            if a in byte_of and b in byte_of:
                at = byte_of[a] << 8 | byte_of[b]
                self._byte_pairs[at] = min(self._byte_pairs[at], r)
        # Half for the slots of 32 bytes, a quarter each for the words and their tokens.
        slots = 1 << max(4, (cache_bytes // 64).bit_length() - 1)
        self._slots = np.zeros((slots, 4), np.int64)
        self._cached_bytes = np.empty(max(cache_bytes // 4, k.CACHED_WORD), np.uint8)
        self._cached_tokens = np.empty(max(cache_bytes // 16, k.CACHED_WORD), np.int32)
        self.state = np.zeros(k.STATE_SIZE, np.int64)

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]."""
        out = np.empty(words.size, np.int32)
        offsets = np.zeros(len(words.document_ends) + 1, np.int64)
        n = k.encode_words(
            words.data, words.ends, words.document_ends, words.start,
            self._byte_ids, self._byte_pairs, self._pairs, self._merged,
            self._slots, self._cached_bytes, self._cached_tokens, self.state, out, offsets[1:],
        )  # fmt: skip
        return out[:n], offsets
