"""The BPE model: its vocabulary and merges, and the tables its encoder runs on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.text.normalization.tables import two_stages
from shardpiece.text.unicode_sets import CODE_POINTS
from shardpiece.tokenizer import encode_kernels as k
from shardpiece.tokenizer.model import byte_piece, vocabulary_identity
from shardpiece.tokenizer.piece_kernels import join_pairs
from shardpiece.tokenizer.ranks import derive_merges, score_priority
from shardpiece.tokenizer.vocabulary import Vocabulary

BYTES, CHARACTERS = "bytes", "characters"
_NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True)
class BPEModel:
    """``vocab``: the byte string of each id (any sequence is taken), None where the id is no token of the model.
    ``merges``: int32 [m, 2], pairs of ids in order of priority.

    ``alphabet``: what words are made of: "bytes" (byte-level BPE; every single byte is in ``vocab``) or "characters".
    ``prefix`` marks those that continue a word (``##``), ``suffix`` those that end one (``</w>``). Characters that ``vocab``
    lacks become the pieces ``<0x00>`` .. ``<0xFF>`` with ``byte_fallback``, else ``unk_id`` (with ``fuse_unk`` once for
    neighbours), or vanish with ``drop_unknown``.

    ``ignore_merges``: a word that is a token is that token, whether merges lead to it or not. ``dropout``: the probability
    that the file of a tokenizer suggests for BPE-dropout; encoding is without it unless it is asked for.

    Raises FormatError for a vocabulary that merges cannot work on.
    """

    vocab: Vocabulary
    merges: np.ndarray
    alphabet: str = BYTES
    prefix: bytes = b""
    suffix: bytes = b""
    unk_id: int | None = None
    byte_fallback: bool = False
    fuse_unk: bool = True
    drop_unknown: bool = False
    ignore_merges: bool = False
    dropout: float = 0.0
    merged: np.ndarray = field(init=False, repr=False)
    byte_ids: np.ndarray = field(init=False, repr=False)
    kind = "bpe"

    def __post_init__(self):
        vocab = Vocabulary.of(self.vocab)
        byte_ids = self._byte_ids(vocab)
        if self.alphabet == CHARACTERS and not self.byte_fallback and self.unk_id is None and not self.drop_unknown:
            raise FormatError("the model has neither byte pieces nor an unknown token for characters it does not have")
        merges = np.ascontiguousarray(self.merges, np.int32).reshape(-1, 2)
        if len(merges) and (merges.min() < 0 or merges.max() >= len(vocab)):
            raise FormatError("a merge names an id outside the vocabulary")
        merged = np.empty(len(merges), np.int32)
        left, right = merges.T.copy()
        prefix = read_only(np.frombuffer(self.prefix, np.uint8))
        join_pairs(vocab.data, vocab.offsets, vocab.present, vocab.slots, left, right, prefix, merged)
        if len(merged) and merged.min() < 0:
            r = int(np.argmin(merged))
            a, b = (vocab[i] for i in merges[r].tolist())
            joined = None if a is None or b is None else a + b.removeprefix(self.prefix)
            raise FormatError(f"merge {r} gives {joined!r}, which is not in the vocabulary")
        object.__setattr__(self, "vocab", vocab)
        object.__setattr__(self, "merges", merges)
        object.__setattr__(self, "merged", merged)
        object.__setattr__(self, "byte_ids", byte_ids)

    def _byte_ids(self, vocab: Vocabulary) -> np.ndarray:
        """int32 [256]: the ids of single bytes, of a byte-level model or one with fallback; empty for others."""
        if self.alphabet == BYTES:
            if self.prefix or self.suffix:
                return _NOTHING
            names, what = [bytes([b]) for b in range(256)], "it is not a byte-level BPE"
        elif self.byte_fallback:
            names, what = [byte_piece(b) for b in range(256)], "there is no fallback to bytes"
        else:
            return _NOTHING
        missing = [b for b, name in enumerate(names) if name not in vocab.ids]
        if missing:
            raise FormatError(f"the vocabulary lacks the single bytes {missing[:8]}: {what}")
        return np.array([vocab.ids[name] for name in names], np.int32)

    @classmethod
    def from_ranks(cls, pieces: Iterable[bytes | None]) -> "BPEModel":
        """The model of tiktoken's ranks: a byte-level BPE where any two neighbours merge whose bytes are a token, the
        lowest id first, and a word that is a token is that token."""
        vocab = Vocabulary.of(pieces)
        merges = derive_merges(vocab, np.where(vocab.present, np.arange(len(vocab)), -1))
        return cls(vocab, merges, ignore_merges=True)

    @classmethod
    def from_scores(
        cls,
        pieces: Iterable[bytes | None],
        scores: np.ndarray,
        unk_id: int | None = None,
        byte_fallback: bool = False,
        mergeable: np.ndarray | None = None,
    ) -> "BPEModel":
        """The model of SentencePiece's BPE: any two neighbours merge whose text is a piece, the highest score (float [ids])
        first. ``mergeable``: bool [ids], False for pieces that merges do not make, such as those of bytes (which are left
        out by themselves). Raises FormatError where equal scores leave the order open."""
        vocab = Vocabulary.of(pieces)
        made = vocab.present if mergeable is None else vocab.present & mergeable
        if byte_fallback:
            made = made.copy()
            made[[vocab.ids[byte_piece(b)] for b in range(256) if byte_piece(b) in vocab.ids]] = False
        merges = derive_merges(vocab, score_priority(vocab, scores, made), characters=True)
        return cls(vocab, merges, CHARACTERS, unk_id=unk_id, byte_fallback=byte_fallback)

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
            "fuse_unk": self.fuse_unk,
            "drop_unknown": self.drop_unknown,
            "ignore_merges": self.ignore_merges,
            "dropout": self.dropout,
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
