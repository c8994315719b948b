"""The BPE model: its vocabulary and merges, and the tables its encoder runs on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer import encode_kernels as k
from shardpiece.tokenizer import pair_kernels
from shardpiece.tokenizer.bpe_dropout import BPEDropout
from shardpiece.tokenizer.bpe_tables import BPETables
from shardpiece.tokenizer.model import byte_piece, vocabulary_identity
from shardpiece.tokenizer.piece_kernels import join_pairs
from shardpiece.tokenizer.ranks import derive_merges, score_priority
from shardpiece.tokenizer.sampling import Sampling
from shardpiece.tokenizer.vocabulary import Vocabulary
from shardpiece.tokenizer.word_cache import WordCache

BYTES, CHARACTERS = "bytes", "characters"
_NOTHING = np.empty(0, np.int32)
NEVER_IN_TEXT = (0xC0, 0xC1, *range(0xF5, 0x100))


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
        ids = np.array([vocab.ids.get(name, -1) for name in names], np.int32)
        missing = np.flatnonzero(ids < 0)
        if self.alphabet == BYTES:
            # What no valid UTF-8 has, no word has: GPT-NeoX has no tokens for these bytes.
            missing = missing[~np.isin(missing, NEVER_IN_TEXT) | np.isin(missing, vocab.data)]
        if len(missing):
            raise FormatError(f"the vocabulary lacks the single bytes {missing[:8].tolist()}: {what}")
        return ids

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

    @cached_property
    def tables(self) -> BPETables:
        return BPETables.of(self)


class BPEEncoder:
    """Encodes words with a model; keeps a word cache of about ``cache_bytes``. One per thread."""

    def __init__(self, model: BPEModel, cache_bytes: int = 64 << 20):
        self._model = model
        tables = self._tables = model.tables
        self._vocab = model.vocab
        # Words that are tokens but not what merging gives are looked for first.
        unreachable = model.vocab.present & ~tables.reachable
        self._whole = (
            model.vocab.slots_of(unreachable, room=8) if model.ignore_merges and unreachable.any() else _NOTHING
        )
        # Where two tokens were made out of order, whether they can be neighbours is found by merging their symbols.
        self._scratch = max(k.MERGED, 2 * int(np.diff(tables.starts).max(initial=0)))
        self._seen = np.full(1 << 16, pair_kernels.NEVER_SEEN, np.uint64)
        self._cache = WordCache(cache_bytes)

    @property
    def state(self) -> np.ndarray:
        """Counts of words that were not in the cache, see ``word_cache_kernels``."""
        return self._cache.state

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]."""
        out = np.empty(words.size + 4, np.int32)
        offsets = np.zeros(len(words.document_ends) + 1, np.int64)
        t, cache = self._tables, self._cache
        n = k.encode_words(
            read_only(words.data), read_only(words.ends), read_only(words.document_ends), words.start,
            t.byte_id, t.byte_pairs, t.pages, t.places, t.fallback, t.unk, t.flags, t.pairs, t.merged, t.parts, t.sides, t.symbols, t.starts, self._seen, t.cells, t.shorter, t.lengths,
            self._whole, self._vocab.data, self._vocab.offsets,
            cache.short_table, cache.long_table, cache.ring_bytes, cache.ring_tokens, self._scratch, cache.state, out, offsets[1:],
        )  # fmt: skip
        return out[:n], offsets

    def encode_sampled(self, words: Words, sampling: Sampling, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As ``encode``, with BPE-dropout; ``keys``: uint64 [documents], see ``sampling``."""
        return self._dropout.encode(words, sampling, keys) if sampling.dropout else self.encode(words)

    @cached_property
    def _dropout(self) -> BPEDropout:
        return BPEDropout(self._model)
