"""The BPE model: its vocabulary and merges, and the tables its encoder runs on."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.text.normalization.tables import two_stages
from shardpiece.text.unicode_sets import CODE_POINTS
from shardpiece.tokenizer import encode_kernels as k
from shardpiece.tokenizer.model import byte_piece, vocabulary_identity
from shardpiece.tokenizer.vocabulary import Vocabulary

BYTES, CHARACTERS = "bytes", "characters"
_NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True)
class BPEModel:
    """``vocab``: the byte string of each id (any sequence is taken), None where the id is no token of the model. ``merges``: int32 [m, 2], pairs of
    ids in order of priority.

    ``alphabet``: what words are made of: "bytes" (byte-level BPE; every single byte is in ``vocab``) or "characters". Of the
    latter, ``prefix`` marks those that continue a word (``##``), ``suffix`` those that end one (``</w>``); what ``vocab``
    lacks becomes the pieces ``<0x00>`` .. ``<0xFF>`` with ``byte_fallback``, else ``unk_id``, once for neighbours.

    Raises FormatError for a vocabulary that merges cannot work on.
    """

    vocab: Vocabulary
    merges: np.ndarray
    alphabet: str = BYTES
    prefix: bytes = b""
    suffix: bytes = b""
    unk_id: int | None = None
    byte_fallback: bool = False
    merged: np.ndarray = field(init=False, repr=False)
    byte_ids: np.ndarray = field(init=False, repr=False)
    kind = "bpe"

    def __post_init__(self):
        object.__setattr__(self, "vocab", Vocabulary.of(self.vocab))
        ids = self.vocab.ids
        names = [bytes([b]) for b in range(256)]
        byte_ids = _NOTHING
        if self.alphabet == BYTES or self.byte_fallback:
            if self.alphabet == CHARACTERS:
                names = [byte_piece(b) for b in range(256)]
            missing = [b for b, name in enumerate(names) if name not in ids]
            if missing:
                what = "it is not a byte-level BPE" if self.alphabet == BYTES else "there is no fallback to bytes"
                raise FormatError(f"the vocabulary lacks the single bytes {missing[:8]}: {what}")
            byte_ids = np.array([ids[name] for name in names], np.int32)
        elif self.unk_id is None:
            raise FormatError("the model has neither byte pieces nor an unknown token for characters it does not have")
        merges = np.ascontiguousarray(self.merges, np.int32).reshape(-1, 2)
        if len(merges) and (merges.min() < 0 or merges.max() >= len(self.vocab)):
            raise FormatError("a merge names an id outside the vocabulary")
        merged = np.empty(len(merges), np.int32)
        for r, (a, b) in enumerate(merges.tolist()):
            left, right = self.vocab[a], self.vocab[b]
            joined = None if left is None or right is None else left + right.removeprefix(self.prefix)
            if joined not in ids:
                raise FormatError(f"merge {r} gives {joined!r}, which is not in the vocabulary")
            merged[r] = ids[joined]
        object.__setattr__(self, "merges", merges)
        object.__setattr__(self, "merged", merged)
        object.__setattr__(self, "byte_ids", byte_ids)

    def __len__(self) -> int:
        return len(self.vocab)

    def settings(self) -> dict:
        """All but vocabulary and merges, as stored in artifacts."""
        return {
            "type": self.kind,
            "alphabet": self.alphabet,
            "prefix": self.prefix.decode(),
            "suffix": self.suffix.decode(),
            "unk": self.unk_id,
            "byte_fallback": self.byte_fallback,
        }

    def identity(self) -> Iterator[bytes]:
        counts = {"vocab_size": len(self), "merges": len(self.merges)}
        yield from vocabulary_identity({**self.settings(), **counts}, self.vocab)
        yield self.merges.astype("<i4").tobytes()

    def pieces(self) -> list[bytes | None]:
        pieces = list(self.vocab)
        if self.byte_fallback:
            for b, i in enumerate(self.byte_ids.tolist()):
                pieces[i] = bytes([b])
        return pieces

    def encoder(self, cache_bytes: int = 64 << 20) -> "BPEEncoder":
        return BPEEncoder(self, cache_bytes)

    def characters(self) -> np.ndarray:
        """int32 [code points, 4]: the id of a character in the middle of a word, and as its first, last and only one; -1
        where there is none."""
        table = np.full((CODE_POINTS, 4), -1, np.int32)
        byte_pieces = set(self.byte_ids.tolist()) if self.byte_fallback else ()
        for i, piece in enumerate(self.vocab):
            if piece is None or i in byte_pieces or len(piece) > 4 + len(self.prefix) + len(self.suffix):
                continue
            text, prefix, suffix = piece.decode(), self.prefix.decode(), self.suffix.decode()
            for position in range(4):
                front = "" if position & 1 else prefix
                back = suffix if position & 2 else ""
                if text.startswith(front) and text.endswith(back) and len(text) == len(front) + 1 + len(back):
                    table[ord(text[len(front)]), position] = i
        return table


class BPEEncoder:
    """Encodes words with a model; keeps a word cache of about ``cache_bytes``. One per thread."""

    def __init__(self, model: BPEModel, cache_bytes: int = 64 << 20):
        self._merged = model.merged
        self._unk = -1 if model.unk_id is None else model.unk_id
        size = 1 << max(4, (2 * len(model.merges)).bit_length())
        self._pairs = np.zeros((size, 2), np.uint64)
        left, right = model.merges.T.copy()
        k.fill_pairs(left, right, self._pairs)
        self._byte_pairs, self._pages, self._places = _NOTHING, np.empty(0, np.uint16), np.empty((0, 4), np.int32)
        if model.alphabet == BYTES:
            self._byte_ids, self._fallback = model.byte_ids, _NOTHING
            self._byte_pairs = np.full(65536, k.NO_RANK, np.int32)
            byte_of = np.full(len(model.vocab), -1, np.int64)
            byte_of[model.byte_ids] = np.arange(256)
            first, second = byte_of[model.merges].T
            ranks = np.flatnonzero((first >= 0) & (second >= 0))[::-1]  # of equal pairs the lowest rank stays
            self._byte_pairs[first[ranks] << 8 | second[ranks]] = ranks
        else:
            self._byte_ids, self._fallback = _NOTHING, model.byte_ids
            # Blocks of 256 code points with the four ids of each.
            pages, values = two_stages(model.characters().view("V16").reshape(-1))
            self._pages, self._places = np.array(pages), values.view(np.int32).reshape(-1, 4).copy()
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
            read_only(words.data), read_only(words.ends), read_only(words.document_ends), words.start,
            self._byte_ids, self._byte_pairs, self._pages, self._places, self._fallback, self._unk,
            self._pairs, self._merged,
            self._slots, self._cached_bytes, self._cached_tokens, self.state, out, offsets[1:],
        )  # fmt: skip
        return out[:n], offsets
