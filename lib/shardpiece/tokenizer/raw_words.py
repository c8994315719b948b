"""A cache of words as they stand in documents, before a normalizer, a pre-tokenizer or a model has seen them.

SentencePiece's normalizer, the cut before ▁ and the model each pass over the text. But most of a text is words that were there
before, and what they become does not depend on what stands around them. Documents are cut at ASCII spaces, and the pieces
looked up; only those that are not there take the long way, as documents of their own.

Why a document's tokens are those of its pieces. Let no source of the charsmap and no user-defined symbol hold a space: the
longest one at a place then never reaches over a space, and a space becomes ▁, or nothing behind white space. So what a piece
becomes is decided by the piece, and by whether white space is in front of it.

*Squeezed* (remove_extra_whitespaces): a document is normalized with white space before it, and it has a prefix. A word w with
its spaces dropped in front and one at its end adds ▁ and w, or nothing where nothing is left of it, which is what w
becomes as a document. The two differ only where w ends with ▁ then: a ▁ at the end of a document is removed. No w does
so that holds no ▁ itself if no target does, or ends with two spaces. Tabs and line feeds count as spaces where the charsmap says
so, and they are part of no other source.

*Kept*: a piece is a run of spaces and the word behind it. The prefix of a document is one more space in front, so every
piece but the first is, without its first space, a document with a prefix. A space alone at the end is ▁. Where line feeds stay as
they are and are part of no piece of the model but one of their own, nothing joins them with anything: one begins a piece
too, which is what it is as a document without the ▁ in front.

Where documents have no prefix, the first piece has no ▁ in front. Where there is no pre-tokenizer, a document is one word; a
BPE model cuts it as if there were one, before each run of ▁ that stands behind a character which no piece has in front of ▁
(``tied``): no merge crosses that place.

Either way every piece begins with ▁ and none ends with ▁, if the document has no ▁ and no target has one (or, kept, a
space): the pre-tokenizer, which cuts before ▁ or a run of them, cuts there, and no piece of the model crosses. A document with
▁ is encoded as a whole. Added tokens that are searched in normalized text must hold neither ▁ nor white space. What a
model does in a word depends on that word alone, but for Unigram models that add up float32 along a document: these have
kernels of their own, ``raw_unigram_kernels``. There a run of unknown characters could go on in the next piece, which
begins with ▁: that must be a piece, or be spelled in bytes. They also cut where characters begin or end that neither model nor
normalizer knows (``inert_characters``), and put together what runs on as unknown there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Documents, Words
from shardpiece.text.engine import TextEngine
from shardpiece.text.special_kernels import copy_pieces
from shardpiece.text.steps import MetaspaceStep, SplitStep
from shardpiece.tokenizer import raw_unigram_kernels as unigram_kernels
from shardpiece.tokenizer import raw_word_kernels as k
from shardpiece.tokenizer.bpe import CHARACTERS
from shardpiece.tokenizer.inert_characters import character_classes, unknown_tokens
from shardpiece.tokenizer.model import Encoder, Model
from shardpiece.tokenizer.unigram import NARROW
from shardpiece.tokenizer.unigram_cut_kernels import ROOM
from shardpiece.tokenizer.word_cache import WordCache

MARK = "▁"
WORDS, RUNS, NOWHERE = "words", "runs", "nowhere"
_RUN_PATTERN = f"{MARK}+[^{MARK}]*|[^{MARK}]+"
_SPACE = 0x20
_MOST_IDS = 1 << 26
_MOST_BYTES = 1 << 22
_LARGEST_SCORE = 1e30
_MOST_MISSING = 1 << 17
_HOLES = 1 << 16

Encode = Callable[[Documents], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class _Plan:
    """``prefix``: whether ▁ is put in front of a document; others: see ``raw_word_kernels``."""

    squeeze: bool
    prefix: bool
    lines: bool
    safe: np.ndarray
    tied: np.ndarray


def _cuts(engine: TextEngine) -> str | None:
    """What begins a word: every ▁ or a run of them, or the document alone, where text has no spaces any more; None: anything
    else."""
    match engine.pretokenizer.steps:
        case [] | [SplitStep(pattern=" ")]:
            return NOWHERE
        case [MetaspaceStep(replacement="▁", prepend="never", split=True)]:
            return WORDS
        case [SplitStep(pattern=pattern, behavior="isolated", invert=False)] if pattern == _RUN_PATTERN:
            return RUNS
    return None


def _plan(engine: TextEngine, model: Model, texts: tuple[str, ...]) -> _Plan | None:
    """How documents may be cut; None: not at all. ``texts``: of tokens that are searched in normalized text."""
    found = engine.normalizer and engine.normalizer.sentencepiece_rules()
    if not found or _cuts(engine) is None:
        return None
    settings, charsmap = found
    squeeze, symbols = settings["remove_extra_whitespaces"], settings["user_defined_symbols"]
    begins, later, goes_on = charsmap.used_bytes()
    targets = charsmap.targets.tobytes()
    if (
        not settings["escape_whitespaces"]
        or (squeeze and not settings["add_dummy_prefix"])
        or settings["treat_whitespace_as_suffix"]
        or begins[_SPACE]
        or later[_SPACE]
        or any(" " in text for text in symbols)
        or any(c in text for text in texts for c in f" \t\n{MARK}")
        or MARK.encode() in targets
        or (b"  \0" if squeeze else b" ") in targets
    ):
        return None
    plain = charsmap.plain(alone=False)
    if squeeze:
        lines = all(plain[c] == _SPACE and not (later[c] or goes_on[c]) for c in b"\t\n")
        lines = lines and not any(c in text for text in symbols for c in "\t\n")
    else:
        pieces = np.searchsorted(model.vocab.offsets, np.flatnonzero(model.vocab.data == 0x0A), side="right") - 1
        joined = bool((np.diff(model.vocab.offsets)[pieces] > 1).any())
        spelled = b"\n" in model.vocab or getattr(model, "byte_fallback", False)
        lines = spelled and not (joined or begins[0x0A] or later[0x0A] or any("\n" in text for text in symbols))
    kept = [c for c in range(0x21, 0x7F) if plain[c] == c and not later[c]]
    if lines and not squeeze:
        kept.append(0x0A)
    safe = _safe(model, kept, [text.encode() for text in (*texts, *symbols)])
    return _Plan(squeeze, settings["add_dummy_prefix"], lines, safe, _tied(engine, model))


def _tied(engine: TextEngine, model: Model) -> np.ndarray:
    """uint8 [256]: whether text may not be cut at a space behind a character that ends with this byte."""
    tied = np.zeros(256, np.uint8)
    if _cuts(engine) == NOWHERE:
        data = model.vocab.data
        marks = np.flatnonzero((data[:-2] == 0xE2) & (data[1:-1] == 0x96) & (data[2:] == 0x81))
        free = np.zeros(len(data) + 3, bool)  # at the front of a piece, or behind another mark
        free[model.vocab.offsets] = free[marks + 3] = True
        tied[data[marks[~free[marks]] - 1]] = 1
    return read_only(tied)


def _safe(model: Model, kept: list[int], symbols: list[bytes]) -> np.ndarray:
    """bool [128 * 128]: whether text may be cut between two ASCII characters among ``kept``, which the normalizer leaves as
    they are before ASCII: nothing has them next to each other, and a run of unknown characters does not go on there."""
    vocab = model.vocab
    joined = np.zeros((128, 128), bool)
    both = (vocab.data[:-1] | vocab.data[1:]) < 0x80
    both[vocab.offsets[1:-1][(vocab.offsets[1:-1] > 0) & (vocab.offsets[1:-1] < len(vocab.data))] - 1] = False
    at = np.flatnonzero(both)
    joined[vocab.data[at], vocab.data[at + 1]] = True
    for symbol in symbols:
        for a, b in pairwise(symbol):
            if a < 0x80 and b < 0x80:
                joined[a, b] = True
    spelled = model.byte_ids is not None and len(model.byte_ids) == 256 and bool((model.byte_ids >= 0).all())
    matched = getattr(model, "matched", vocab.present)
    known = np.zeros(128, bool)
    for c in kept:
        i = vocab.ids.get(bytes([c]))
        known[c] = spelled or (i is not None and bool(matched[i]))
    safe = np.zeros((128, 128), bool)
    safe[np.ix_(kept, kept)] = True
    return read_only((safe & ~joined & (known[:, None] | known[None, :])).reshape(-1))


class RawWordEncoder:
    """Encodes documents of one tokenizer with a cache of about ``cache_bytes``. One per thread."""

    def __init__(self, plan: _Plan, engine: TextEngine, model: Model, encoder: Encoder, cache_bytes: int):
        self._plan, self._engine, self._encoder = plan, engine, encoder
        self._cache = WordCache(cache_bytes)
        self._narrow = getattr(model, "arithmetic", None) == NARROW
        if self._narrow:
            self._normalizer = engine.normalizer.sentencepiece_tables
            settings, charsmap = engine.normalizer.sentencepiece_rules()
            classes = character_classes(model, charsmap, settings["user_defined_symbols"])
            _ = model.cells  # not when the first text comes
            self._unknown = *classes, *unknown_tokens(model)
            self._ring_scores = np.zeros(len(self._cache.ring_tokens), np.float32)
        mark = np.frombuffer(MARK.encode(), np.uint8)
        words = Words(mark, 0, np.array([len(mark)]), np.array([1]))
        self._mark = read_only(encoder.encode(words)[0])

    @classmethod
    def of(
        cls,
        engine: TextEngine,
        model: Model,
        encoder: Encoder,
        texts: tuple[str, ...] = (),
        cache_bytes: int = 64 << 20,
    ) -> "RawWordEncoder | None":
        """None where the pieces of a document are not encoded like documents of their own. ``texts``: of added tokens that
        are searched in normalized text."""
        if model.kind == "unigram":
            if model.arithmetic != NARROW or texts or not _has_borders(model) or _cuts(engine) != WORDS:
                return None
        elif (
            model.kind != "bpe"
            or model.alphabet != CHARACTERS
            or model.prefix
            or model.suffix
            or model.ignore_merges
            or (_cuts(engine) == NOWHERE and model.vocab.ids.get(MARK.encode()) is None)
        ):
            return None
        plan = _plan(engine, model, texts)
        if plan is None or (model.kind == "unigram" and not plan.squeeze):
            return None
        return cls(plan, engine, model, encoder, cache_bytes)

    def encode(self, documents: Documents, encode_normalized: Encode | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]). ``encode_normalized``: encodes normalized documents, if there is more
        to it than words of the pre-tokenizer, to which each document is the beginning of a text."""
        if self._narrow:
            return self._encode_narrow(documents)
        return self._encode(documents, encode_normalized or self._encode_normalized)

    def _encode_normalized(self, documents: Documents) -> tuple[np.ndarray, np.ndarray]:
        return self._encoder.encode(self._engine.pretokenizer.split(documents))

    def _encode(self, documents: Documents, encode_normalized: Encode) -> tuple[np.ndarray, np.ndarray]:
        plan, cache = self._plan, self._cache
        tables = cache.short_table, cache.long_table, cache.ring_bytes, cache.ring_tokens, cache.state
        data, borders = read_only(documents.data), read_only(documents.offsets)
        n = len(documents)
        offsets = np.zeros(n + 1, np.int64)
        hole_ends = np.zeros(n, np.int64)
        cursor = np.zeros(k.CURSOR, np.int64)
        cursor[k.PLACE] = borders[0]
        holes = np.empty((4, _HOLES), np.int64)
        out = np.empty(documents.size + k.ROOM * k.MOST, np.int32)
        parts, base = [], 0
        while not cursor[k.DONE]:
            first = int(cursor[k.ENDED])
            n_holes = k.recall_round(
                data, borders, cursor, plan.squeeze, plan.prefix, plan.lines, plan.safe, plan.tied, *tables, self._mark, _MOST_MISSING, out,
                offsets[1:], hole_ends, holes,
            )  # fmt: skip
            tokens, ends = np.empty(0, np.int32), np.zeros(1, np.int64)
            if n_holes:
                starts, stops, _, kinds = (row.copy() for row in holes[:, :n_holes])
                tokens, ends = encode_normalized(self._normalized(data, starts, stops, kinds))
            target = np.empty(int(cursor[k.AT]) + len(tokens) + 4, np.int32)
            m = k.fill_holes(
                data, out, cursor[k.AT], holes, n_holes, tokens, ends, first, base, offsets[1:], hole_ends, cursor, *tables,
                target,
            )  # fmt: skip
            parts.append(target[:m])
            base += m
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, np.int32)]), offsets

    def _normalized(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray, kinds: np.ndarray) -> Documents:
        """The pieces as documents."""
        raw, offsets = np.empty(int((stops - starts).sum()), np.uint8), np.zeros(len(starts) + 1, np.int64)
        copy_pieces(data, starts, stops, raw, offsets)
        pieces = self._engine.normalizer.normalize(Documents(read_only(raw), read_only(offsets)))
        out, offsets = np.empty(pieces.size + 3 * len(starts), np.uint8), np.zeros(len(starts) + 1, np.int64)
        (k.without_marks if self._plan.prefix else k.with_marks)(pieces.data, pieces.offsets, kinds, out, offsets)
        return Documents(read_only(out[: offsets[-1]]), read_only(offsets))

    def _encode_narrow(self, documents: Documents) -> tuple[np.ndarray, np.ndarray]:
        cache = self._cache
        offsets = np.zeros(len(documents) + 1, np.int64)
        tokens = unigram_kernels.encode_documents(
            read_only(documents.data), read_only(documents.offsets), self._plan.lines, self._plan.safe, *self._unknown,
            *self._normalizer,
            *self._encoder.narrow_tables, cache.short_table, cache.long_table, cache.ring_bytes, cache.ring_tokens,
            self._ring_scores, cache.state, np.empty(documents.size + ROOM * k.MOST, np.int32), offsets[1:],
        )  # fmt: skip
        if len(tokens) == 1 and tokens[0] < 0:
            return self._encoder.encode(self._engine.split(documents))  # which says what it has no token for
        return tokens, offsets


def _has_borders(model) -> bool:
    """Whether no piece of a Unigram model crosses the place before a ▁, and no unknown run does; and no sum can be infinite."""
    joins, mark_joins = model.joins
    if max(np.abs(model.piece_scores[model.matched]).max(initial=0.0), abs(model.unknown_score)) > _LARGEST_SCORE:
        return False
    if len(model) >= _MOST_IDS or len(model.vocab.data) > _MOST_BYTES or mark_joins or joins.any():
        return False
    if model.byte_ids is not None:
        return bool((model.byte_ids >= 0).all())
    mark = model.vocab.ids.get(MARK.encode())
    return mark is not None and bool(model.matched[mark])
