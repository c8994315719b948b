"""SentencePiece's ``.model`` files (sentencepiece_model.proto), read and written without its library.

A model file is a list of pieces with scores and types, the settings it was trained with, some of which decide how it
encodes, and the rules by which text is normalized.
"""

import base64
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.text.normalization.charsmap import Charsmap
from shardpiece.text.normalization.charsmap_rules import RULES, named_charsmap
from shardpiece.text.normalizers import Normalizer
from shardpiece.text.steps import MetaspaceStep, SplitStep
from shardpiece.tokenizer.formats import protobuf as p
from shardpiece.tokenizer.formats.sentencepiece_specs import NormalizerSpec, TrainerSpec, read_spec, write_spec

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of pieces."""
_RESERVED = (UNKNOWN, CONTROL, BYTE)

SPACE = "▁"
SPACE_RUNS = {"type": "split", "pattern": f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+"}
"""The pre-tokenizer that cuts before runs of ▁."""
BYTE_PIECES = tuple(b"<0x%02X>" % b for b in range(256))
"""The pieces that bytes are spelled with where a model has byte fallback."""

_PIECES, _TRAINER_SPEC, _NORMALIZER_SPEC, _DENORMALIZER_SPEC = 1, 2, 3, 5


@dataclass(frozen=True, eq=False)
class SentencePieceFile:
    """``pieces``: spelled in UTF-8; ``scores``: float32 [pieces]; ``types``: NORMAL, UNKNOWN, CONTROL, USER_DEFINED,
    UNUSED or BYTE. ``trainer`` and ``normalizer``: settings by their names in sentencepiece_model.proto, "model_type" as
    one of MODEL_TYPES; unset ones read as the defaults. ``denormalizer``: as the normalizer, for decoded text.
    ``rest``: fields of the file beside these, as they are.

    Raises FormatError for a model that SentencePiece would not load, or that it could not encode with.
    """

    pieces: list[bytes]
    scores: np.ndarray
    types: list[int]
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    normalizer: NormalizerSpec = field(default_factory=NormalizerSpec)
    denormalizer: NormalizerSpec | None = None
    rest: bytes = b""

    def __post_init__(self):
        object.__setattr__(self, "scores", np.ascontiguousarray(self.scores, np.float32))
        if not len(self.pieces) == len(self.scores) == len(self.types):
            raise FormatError("SentencePiece model: pieces, scores and types are not of one length")
        if not self.pieces:
            raise FormatError("SentencePiece model: it has no pieces")
        if not np.isfinite(self.scores).all():
            raise FormatError(
                f"SentencePiece model: the score of piece {int(np.argmin(np.isfinite(self.scores)))} is no number"
            )
        # As SentencePiece: a piece to look up in text may be spelled as one that is not.
        seen: dict[tuple[bool, bytes], int] = {}
        for i, (piece, kind) in enumerate(zip(self.pieces, self.types, strict=True)):
            if not piece or b"\0" in piece:
                raise FormatError(f"SentencePiece model: piece {i} is {'text with a zero byte' if piece else 'empty'}")
            first = seen.setdefault((kind in _RESERVED, piece), i)
            if first != i:
                raise FormatError(f"SentencePiece model: pieces {first} and {i} are the same, {piece!r}")
            try:
                piece.decode()
            except UnicodeDecodeError:
                raise FormatError(f"SentencePiece model: piece {i} is not UTF-8: {piece!r}") from None
        counts = Counter(self.types)
        if wrong := sorted(set(counts) - {NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE}):
            raise FormatError(f"SentencePiece model: type {wrong[0]} is no type of a piece")
        if counts[UNKNOWN] != 1:
            raise FormatError(f"SentencePiece model: one piece is of the type UNKNOWN, and here {counts[UNKNOWN]} are")
        if len(self.pieces) == sum(counts[kind] for kind in _RESERVED):
            raise FormatError("SentencePiece model: no piece stands for text")
        spelled = {piece for piece, kind in zip(self.pieces, self.types, strict=True) if kind == BYTE}
        if spelled != (set(BYTE_PIECES) if self.trainer["byte_fallback"] else set()):
            needed = "256 are needed" if self.trainer["byte_fallback"] else "and byte_fallback is not set"
            raise FormatError(f"SentencePiece model: {len(spelled)} byte pieces, {needed}")

    @property
    def unk_id(self) -> int:
        return self.types.index(UNKNOWN)

    def id_of(self, name: str) -> int | None:
        """The id of the "bos", "eos" or "pad" piece; None where the model has none: as SentencePiece does, by its
        spelling and not by the id in the settings."""
        piece = self.trainer[f"{name}_piece"].encode()
        found = [i for i, other in enumerate(self.pieces) if other == piece and self.types[i] == CONTROL]
        return found[0] if found else None


def read_model(raw: bytes) -> SentencePieceFile:
    """Read the content of a ``.model`` file. Raises FormatError when it is damaged or no such file."""
    pieces: list[bytes] = []
    scores: list[float] = []
    types: list[int] = []
    specs: dict[int, bytes] = {}
    rest = b""
    try:
        for number, kind, value, whole in p.fields(raw):
            if number in (_PIECES, _TRAINER_SPEC, _NORMALIZER_SPEC, _DENORMALIZER_SPEC):
                if kind != p.BYTES:
                    raise FormatError(f"field {number} is not a message")
                if number == _PIECES:
                    piece, score, piece_type = _read_piece(value, len(pieces))
                    pieces.append(piece)
                    scores.append(score)
                    types.append(piece_type)
                else:
                    # Messages that follow each other are one, by the wire format's rules.
                    specs[number] = specs.get(number, b"") + value
            else:
                rest += whole
        trainer = read_spec(TrainerSpec(), specs.get(_TRAINER_SPEC, b""))
        normalizer = read_spec(NormalizerSpec(), specs.get(_NORMALIZER_SPEC, b""))
        denormalizer = None
        if _DENORMALIZER_SPEC in specs:
            denormalizer = read_spec(NormalizerSpec(), specs[_DENORMALIZER_SPEC])
    except FormatError as error:
        raise FormatError(f"not a SentencePiece model, or damaged: {error}") from None
    return SentencePieceFile(
        pieces, np.array(scores, np.float32), types, trainer, normalizer, denormalizer, rest
    )  # fmt: skip


def _read_piece(message: bytes, index: int) -> tuple[bytes, float, int]:
    piece, score, kind = b"", 0.0, NORMAL
    for number, wire, value, _ in p.fields(message):
        if (number, wire) == (1, p.BYTES):
            piece = value
        elif (number, wire) == (2, p.FIXED32):
            [score] = struct.unpack("<f", value)
        elif (number, wire) == (3, p.VARINT):
            kind = value
        else:
            raise FormatError(f"piece {index} has a field {number} of kind {wire}, which is unknown")
    return piece, score, kind


def write_model(file: SentencePieceFile) -> bytes:
    """The content of a ``.model`` file, fields in the order of their numbers."""
    out = []
    for piece, score, kind in zip(file.pieces, file.scores.astype("<f4"), file.types, strict=True):
        message = p.delimited(1, piece) + p.fixed32(2, score.tobytes())
        out.append(p.delimited(_PIECES, message if kind == NORMAL else message + p.varint(3, kind)))
    out.append(p.delimited(_TRAINER_SPEC, write_spec(file.trainer)))
    out.append(p.delimited(_NORMALIZER_SPEC, write_spec(file.normalizer)))
    if file.denormalizer is not None:
        out.append(p.delimited(_DENORMALIZER_SPEC, write_spec(file.denormalizer)))
    return b"".join([*out, file.rest])


# --- our models as files --------------------------------------------------------------------------------------------


def normalizer_spec(engine: TextEngine) -> NormalizerSpec:
    """The file's normalizer for a text engine that works as SentencePiece: the normalizer "sentencepiece", then
    "metaspace_never", which cuts before every ▁ (pieces then have it at their beginning alone), SPACE_RUNS, or nothing.

    Raises FormatError for any other engine, which no model file could describe.
    """
    stored = engine.normalizer and engine.normalizer.spec
    steps = engine.pretokenizer.steps
    cuts = steps == (MetaspaceStep(prepend="never"),) or (
        len(steps) == 1
        and isinstance(steps[0], SplitStep)
        and (steps[0].pattern, steps[0].behavior, steps[0].invert) == (SPACE_RUNS["pattern"], "isolated", False)
    )
    if not stored or stored["type"] != "sentencepiece" or not (cuts or steps == ()):
        raise FormatError(
            f"a SentencePiece model normalizes by the normalizer sentencepiece and cuts with the pre-tokenizer "
            f"metaspace_never or none, and this is {engine.name}"
        )
    if steps and (stored["treat_whitespace_as_suffix"] or not stored["escape_whitespaces"]):
        raise FormatError(
            "metaspace_never cuts before ▁: a SentencePiece model whose white space is a suffix, or not escaped, is not "
            "like that"
        )
    table = base64.b64decode(stored["table"])
    flags = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")
    return NormalizerSpec(
        name=_rule_name(table), precompiled_charsmap=table, **{flag: stored[flag] for flag in flags}
    )  # fmt: skip


def _rule_name(table: bytes) -> str:
    """The name of SentencePiece's own rules that a charsmap holds, or its name for others."""
    if not table:
        return "identity"
    names = sorted(RULES, key=lambda name: name != "nmt_nfkc")  # most often this one
    return next((name for name in names if named_charsmap(name).to_bytes() == table), "user_defined")


def text_engine(file: SentencePieceFile) -> TextEngine:
    """What the model does to text before it looks for pieces. A word begins at every ▁ if no piece has one but at its
    beginning, and at every run of ▁ (see SPACE_RUNS) if pieces have ▁ behind ▁ alone; else words are whole documents."""
    normalizer = Normalizer.sentencepiece(
        Charsmap.from_bytes(file.normalizer["precompiled_charsmap"]),
        add_dummy_prefix=file.normalizer["add_dummy_prefix"],
        remove_extra_whitespaces=file.normalizer["remove_extra_whitespaces"],
        escape_whitespaces=file.normalizer["escape_whitespaces"],
        treat_whitespace_as_suffix=file.trainer["treat_whitespace_as_suffix"],
        user_defined_symbols=[
            piece.decode() for piece, kind in zip(file.pieces, file.types, strict=True) if kind == USER_DEFINED
        ],
    )
    return TextEngine(_words(file), normalizer)


def _words(file: SentencePieceFile) -> str | dict:
    """The pre-tokenizer that cuts where no piece can cross and nothing else can reach."""
    if not file.normalizer["escape_whitespaces"] or file.trainer["treat_whitespace_as_suffix"]:
        return "none"
    found = [
        piece.decode()
        for piece, kind in zip(file.pieces, file.types, strict=True)
        if kind in (NORMAL, USER_DEFINED, UNUSED)
    ]
    if SPACE not in found and not file.trainer["byte_fallback"]:
        return "none"  # unknown, it is one token with the unknown characters around it
    before = {a for piece in found if SPACE in piece[1:] for a, b in pairwise(piece) if b == SPACE}
    if not before:
        return "metaspace_never"
    return SPACE_RUNS if before == {SPACE} else "none"


def to_sentencepiece(
    kind: str,
    pieces: Sequence[bytes],
    scores: Sequence[float] | np.ndarray,
    types: Sequence[int],
    engine: TextEngine,
    *,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    byte_fallback: bool = False,
    trainer: Mapping[str, object] | None = None,
    denormalizer: NormalizerSpec | None = None,
) -> bytes:
    """A model trained here as the content of a ``.model`` file, which SentencePiece loads and encodes with alike.

    ``kind``: "unigram" or "bpe". ``pieces``, ``scores``, ``types``: by id; one is UNKNOWN, with ``byte_fallback`` 256 are
    BYTE. ``bos_id``, ``eos_id``, ``pad_id``: ids of CONTROL pieces; None: there is none. ``engine``: see
    ``normalizer_spec``. ``trainer``: more settings of the training for the reader, by their names in
    sentencepiece_model.proto, such as character_coverage. ``denormalizer``: for decoded text.

    Raises FormatError when SentencePiece would not load the model or not encode as we do, ConfigError for an unknown
    setting.
    """
    if kind not in ("unigram", "bpe"):
        raise ConfigError(f"SentencePiece model: kind {kind!r} is not one of unigram, bpe")
    normalizer = normalizer_spec(engine)
    spec = TrainerSpec(model_type=kind, vocab_size=len(pieces), byte_fallback=byte_fallback)
    for key, value in (trainer or {}).items():
        if key not in TrainerSpec.names():
            raise ConfigError(f"SentencePiece model: {key!r} is no setting of its trainer")
        spec[key] = value
    stored = engine.normalizer.spec
    if stored["treat_whitespace_as_suffix"]:
        spec["treat_whitespace_as_suffix"] = True
    symbols = [piece.decode() for piece, t in zip(pieces, types, strict=True) if t == USER_DEFINED]
    if sorted(symbols) != stored["user_defined_symbols"]:
        raise FormatError(
            f"SentencePiece model: its user defined pieces ({', '.join(symbols) or 'none'}) are not those that the normalizer "
            f"leaves alone ({', '.join(stored['user_defined_symbols']) or 'none'})"
        )
    for name, wanted, i in (
        ("unk", UNKNOWN, types.index(UNKNOWN) if UNKNOWN in types else -1),
        *((name, CONTROL, -1 if i is None else i) for name, i in (("bos", bos_id), ("eos", eos_id), ("pad", pad_id))),
    ):
        spec[f"{name}_id"] = i
        if i >= 0:
            if i >= len(pieces) or types[i] != wanted:
                raise FormatError(f"SentencePiece model: {name}_id {i} is no piece of its type")
            spec[f"{name}_piece"] = pieces[i].decode()
    return write_model(
        SentencePieceFile([*pieces], np.asarray(scores, np.float32), [*types], spec, normalizer, denormalizer)
    )


def bpe_scores(types: Sequence[int]) -> np.ndarray:
    """The scores (float32) of a BPE model whose pieces are in order of their merges, characters last: 0, -1, -2, … for
    NORMAL ones, 0 for all others, as SentencePiece writes them."""
    normal = np.array(types) == NORMAL
    return np.where(normal, -(np.cumsum(normal) - 1.0), 0.0).astype(np.float32)
