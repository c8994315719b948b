"""The Unigram model (Kudo 2018): pieces with log-probabilities, and the tables its encoder runs on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from shardpiece.errors import ConfigError, FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer import viterbi_kernels as k
from shardpiece.tokenizer.bpe_tables import trie_cells
from shardpiece.tokenizer.model import vocabulary_identity
from shardpiece.tokenizer.sampling import Sampling
from shardpiece.tokenizer.trie_kernels import build_trie
from shardpiece.tokenizer.unigram_sampling_kernels import sample_words
from shardpiece.tokenizer.vocabulary import Vocabulary

UNKNOWN_PENALTY = 10.0
"""What an unknown character costs below the lowest score of any piece, as in SentencePiece and Hugging Face."""

WIDE, NARROW = "float64", "float32"
"""How scores are added up: float64, word by word, as Hugging Face does it; float32, along the whole text, as SentencePiece."""

MARK = "▁".encode()
_MAX_PIECE_BYTES = 1 << 16
_MAX_PIECES = 1 << 26


@dataclass(frozen=True)
class UnigramModel:
    """``vocab``: the UTF-8 bytes of each id's piece, None where an id is not the model's. ``scores``: float64
    [len(vocab)], log-probabilities, ignored where vocab is None and for byte pieces. ``unk_id``: stands for characters
    that no piece spells, adjacent ones together; None when there is no such token. ``byte_ids``: int32 [256],
    the ids of the pieces <0x00> ... that spell unknown characters (-1: no piece for that byte), or None without byte
    fallback.

    ``arithmetic``: "float64" or "float32", which decides between paths that are equal but for rounding. ``matched``: bool
    [len(vocab)], the pieces that are found in text; None: all but ``unk_id`` and byte pieces. ``user_defined``: ids of
    SentencePiece's user-defined symbols, whose score is made from their length. ``unknown_score``: what an unknown
    character adds to a path; None: UNKNOWN_PENALTY below the lowest score of a piece.

    Raises FormatError for a vocabulary that cannot work."""

    vocab: Vocabulary
    scores: np.ndarray
    unk_id: int | None = None
    byte_ids: np.ndarray | None = None
    arithmetic: str = WIDE
    matched: np.ndarray | None = None
    user_defined: tuple[int, ...] = ()
    unknown_score: float | None = None

    kind: ClassVar[str] = "unigram"

    def __post_init__(self):
        object.__setattr__(self, "vocab", Vocabulary.of(self.vocab))
        scores = np.ascontiguousarray(self.scores, np.float64)
        n = len(self.vocab)
        if scores.shape != (n,):
            raise FormatError(f"a Unigram vocabulary of {n:,} pieces with {scores.size:,} scores")
        if n > _MAX_PIECES:
            raise FormatError(f"a Unigram vocabulary of {n:,} pieces, more than {_MAX_PIECES:,}")
        if self.unk_id is not None and not 0 <= self.unk_id < n:
            raise FormatError(f"the unk id {self.unk_id} is outside the vocabulary of {n:,} pieces")
        if self.arithmetic not in (WIDE, NARROW):
            raise FormatError(f"a Unigram model's arithmetic is {WIDE} or {NARROW}, not {self.arithmetic!r}")
        if self.byte_ids is not None:
            byte_ids = np.ascontiguousarray(self.byte_ids, np.int32)
            if byte_ids.shape != (256,) or byte_ids.min() < -1 or byte_ids.max() >= n:
                raise FormatError("byte fallback needs 256 ids of the vocabulary")
            object.__setattr__(self, "byte_ids", byte_ids)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "matched", self._matched())
        object.__setattr__(self, "user_defined", tuple(sorted(int(i) for i in self.user_defined)))
        if not all(0 <= i < n and self.matched[i] for i in self.user_defined):
            raise FormatError("a user-defined symbol is no piece that is found in text")
        _ = self.vocab.ids  # two ids of one piece are an error
        sizes = np.diff(self.vocab.offsets)[self._found]
        if len(sizes) and not 0 < sizes.min() <= sizes.max() <= _MAX_PIECE_BYTES:
            i = self._found[int(np.argmax((sizes == 0) | (sizes > _MAX_PIECE_BYTES)))]
            raise FormatError(f"piece {i} has {len(self.vocab[i]):,} bytes")
        bad = self._found[~np.isfinite(scores[self._found])]
        if len(bad):
            raise FormatError(f"the score of piece {bad[0]} is {scores[bad[0]]}")
        if self.unknown_score is None:
            object.__setattr__(self, "unknown_score", self._below_the_lowest())

    def _matched(self) -> np.ndarray:
        if self.matched is None:
            matched = np.array(self.vocab.present)
            if self.byte_ids is not None:
                matched[self.byte_ids[self.byte_ids >= 0]] = False
            if self.unk_id is not None:
                matched[self.unk_id] = False
        else:
            matched = np.ascontiguousarray(self.matched, np.bool_)
            if matched.shape != (len(self.vocab),) or (matched & ~self.vocab.present).any():
                raise FormatError("a piece that is found in text is not in the vocabulary")
        return read_only(matched)

    def _below_the_lowest(self) -> float:
        """What an unknown character adds to a path, as the references take it."""
        if self.arithmetic == WIDE:
            return float(self.scores[self._found].min(initial=0.0)) - UNKNOWN_PENALTY
        # In float32; without any such piece, from the largest number there is.
        lowest = np.float32(self.scores[self._normal].min(initial=np.finfo(np.float32).max))
        return float(lowest - np.float32(UNKNOWN_PENALTY))

    def __len__(self) -> int:
        return len(self.vocab)

    @cached_property
    def _found(self) -> np.ndarray:
        """The ids of pieces that are found in text."""
        return np.flatnonzero(self.matched)

    @property
    def _normal(self) -> np.ndarray:
        return np.setdiff1d(self._found, self.user_defined)

    @cached_property
    def piece_scores(self) -> np.ndarray:
        """float64 [pieces], what each piece adds to a path: a user-defined symbol a tenth for every byte but one."""
        scores = self.scores.copy()
        if self.arithmetic == NARROW:
            scores = scores.astype(np.float32).astype(np.float64)
        ids = list(self.user_defined)
        sizes = np.diff(self.vocab.offsets)[ids]
        scores[ids] = ((sizes - 1) * 0.1).astype(np.float32)
        return scores

    def settings(self) -> dict:
        """All but vocabulary and scores, in JSON."""
        return {
            "type": self.kind,
            "unk": self.unk_id,
            "byte_fallback": self.byte_ids is not None,
            "arithmetic": self.arithmetic,
            "unknown_score": self.unknown_score,
            "user_defined": list(self.user_defined),
            "not_matched": np.flatnonzero(~self.matched & self.vocab.present).tolist(),
        }

    @classmethod
    def from_settings(
        cls, vocab: Sequence[bytes | None], scores: np.ndarray, byte_ids: np.ndarray | None, settings: dict
    ) -> "UnigramModel":
        """With what ``settings`` gave."""
        vocab = Vocabulary.of(vocab)
        matched = np.array(vocab.present)
        matched[settings["not_matched"]] = False
        return cls(
            vocab,
            scores,
            settings["unk"],
            byte_ids,
            settings["arithmetic"],
            matched,
            tuple(settings["user_defined"]),
            settings["unknown_score"],
        )

    def identity(self) -> Iterator[bytes]:
        """The bytes of everything that decides ids."""
        yield from vocabulary_identity(self.settings(), self.vocab)
        kept = np.zeros(len(self), np.float64)
        kept[self._found] = self.scores[self._found]
        yield kept.astype("<f8").tobytes()
        if self.byte_ids is not None:
            yield self.byte_ids.astype("<i4").tobytes()

    def pieces(self) -> list[bytes | None]:
        """What each id contributes to decoded text: byte pieces as that byte, others as spelled."""
        result = list(self.vocab)
        if self.byte_ids is not None:
            for b, i in enumerate(self.byte_ids.tolist()):
                if i >= 0:
                    result[i] = bytes([b])
        return result

    def encoder(self, cache_bytes: int = 64 << 20) -> "UnigramEncoder":
        return UnigramEncoder(self, cache_bytes)

    @cached_property
    def trie(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(nodes, weights, ids) as ``viterbi_kernels`` takes them."""
        order = sorted(self._found.tolist(), key=lambda i: self.vocab[i])
        offsets = np.cumsum([0, *(len(self.vocab[i]) for i in order)], dtype=np.int64)
        symbols = np.frombuffer(b"".join(self.vocab[i] for i in order), np.uint8).astype(np.int32)
        built, node_of = build_trie(symbols, offsets, 256)
        weights = np.zeros(len(built))
        weights[node_of] = self.piece_scores[order]
        ids = np.full(len(built), -1, np.int32)
        ids[node_of] = order
        high = built["base"].astype(np.uint64) << np.uint64(1)
        high[node_of] |= np.uint64(1)
        nodes = built["check"].astype(np.uint32).astype(np.uint64) | (high << np.uint64(32))
        return nodes, weights, ids

    @cached_property
    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """(cells, cell_scores) as ``unigram_path_kernels`` take them."""
        scores = np.append(-np.inf, self.piece_scores).astype(np.float32)
        return read_only(trie_cells(self.vocab, self.matched)), read_only(scores)

    @cached_property
    def joins(self) -> tuple[np.ndarray, bool]:
        """(joins, mark_joins) as ``viterbi_kernels`` takes them."""
        joins, mark_joins = np.zeros(256, bool), False
        for i in self._found.tolist():
            piece = self.vocab[i]
            at = piece.find(MARK, 1)
            while at >= 0:
                if piece[:at].endswith(MARK):
                    mark_joins = True
                else:
                    joins[piece[at - 1]] = True
                at = piece.find(MARK, at + 1)
        return joins, mark_joins

    @cached_property
    def pairs(self) -> np.ndarray:
        """bool [65536], as ``viterbi_kernels`` takes it."""
        pairs = np.zeros((256, 256), bool)
        data, offsets = self.vocab.data, self.vocab.offsets
        inner = np.zeros(len(data) + 1, bool)  # bytes of pieces that are found in text, but for the first one of each
        for i in self._found.tolist():
            inner[offsets[i] + 1 : offsets[i + 1]] = True
        inner = inner[: len(data)] & ((data & 0xC0) != 0x80)
        at = np.flatnonzero(inner)
        pairs[data[at - 1], data[at]] = True
        pairs[0x80:, 0x80:] = True
        return pairs.reshape(-1)


class UnigramEncoder:
    """Encodes words with a model; keeps a word cache of about ``cache_bytes``. One per thread."""

    def __init__(self, model: UnigramModel, cache_bytes: int = 64 << 20):
        self._model = model
        self._nodes, self._weights, self._ids = (read_only(array) for array in model.trie)
        self._scores = read_only(np.append(model.piece_scores, 0.0))
        self._lengths = read_only(np.diff(model.vocab.offsets).astype(np.int32))
        self._unk_id = -1 if model.unk_id is None else model.unk_id
        self._byte_ids = read_only(np.full(256, -1, np.int32) if model.byte_ids is None else model.byte_ids)
        self._narrow_scores = read_only(self._scores.astype(np.float32))
        pairs, (joins, self._mark_joins) = model.pairs, model.joins
        if model.byte_ids is not None and model.byte_ids.min() < 0:
            # What has no piece is spelled in bytes or unknown together: nothing is cut.
            pairs, joins, self._mark_joins = np.ones_like(pairs), np.ones_like(joins), True
        self._pairs = read_only(pairs)
        self._joins = read_only(joins)
        # Three quarters for short words, if halves are powers of two.
        buckets = 1 << max(1, (cache_bytes // 128).bit_length() - 1)
        self._short = _aligned(buckets * 8)
        self._long = _aligned(max(1, buckets // 8) * 32)
        self.state = np.zeros(k.STATE_SIZE, np.int64)

    @cached_property
    def narrow_tables(self) -> tuple:
        """``cells`` to ``segment_state`` as ``raw_unigram_kernels`` takes them."""
        return (
            *self._model.cells,
            self._nodes, self._weights, self._ids, self._scores, self._narrow_scores, self._lengths, self._model.unknown_score,
            self._unk_id, self._byte_ids, self._pairs, self._joins, self._mark_joins, k.LIMITS, self._short, self._long,
            self.state,
        )  # fmt: skip

    def encode(self, words: Words) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]]. Raises
        ConfigError for a character that no piece spells when the model has neither an unk token nor its bytes."""
        out = np.empty(words.size + 4, np.int32)
        offsets = np.zeros(len(words.document_ends) + 1, np.int64)
        n = k.segment_words(
            read_only(words.data), read_only(words.ends), read_only(words.document_ends), words.start,
            self._nodes, self._weights, self._ids, self._scores, self._narrow_scores, self._lengths, self._model.unknown_score, self._unk_id,
            self._byte_ids, self._pairs, self._joins, self._mark_joins, self._model.arithmetic == NARROW, k.LIMITS, self._short,
            self._long, self.state, np.zeros(1), out, offsets[1:],
        )  # fmt: skip
        return self._checked(n, words, out), offsets

    def encode_sampled(self, words: Words, sampling: Sampling, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As ``encode``, with segmentations drawn as ``sampling`` says; ``keys``: uint64 [documents]. Each word is drawn by
        itself, and takes one of its own ``nbest`` best segmentations: a word begins at every ▁ that no piece crosses, and
        where the pre-tokenizer cuts."""
        if sampling.deterministic:
            return self.encode(words)
        out = np.empty(words.size + 4, np.int32)
        offsets = np.zeros(len(words.document_ends) + 1, np.int64)
        n = sample_words(
            read_only(words.data), read_only(words.ends), read_only(words.document_ends), words.start, read_only(keys),
            float(sampling.alpha), sampling.nbest, self._nodes, self._weights, self._ids, self._lengths,
            self._model.unknown_score, self._unk_id, self._byte_ids, self._joins, self._mark_joins,
            self._model.arithmetic == NARROW, out, offsets[1:],
        )  # fmt: skip
        return self._checked(n, words, out), offsets

    def _checked(self, n: int, words: Words, out: np.ndarray) -> np.ndarray:
        """The tokens; ``n``: what a kernel returned."""
        if n >= 0:
            return out[:n]
        w = -1 - int(n)
        start = int(words.ends[w - 1]) if w else words.start
        word = words.data[start : int(words.ends[w])].tobytes()[:80]
        raise ConfigError(
            f"the model has no token for a character of {word.decode(errors='replace')!r}, and no unk token"
        )


def _aligned(n: int) -> np.ndarray:
    """uint64 [n] of zeros, at the beginning of a cache line."""
    whole = np.zeros(n + 8, np.uint64)
    skipped = (-whole.ctypes.data // 8) % 8
    return whole[skipped : skipped + n]
