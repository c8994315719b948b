"""tiktoken ranks: one line per token, base64 of its bytes, a space, its rank. The pattern and the special tokens are no part of
the file; those of published vocabularies are known (``published``)."""

import base64
import binascii
from collections.abc import Mapping, Sequence

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.formats import companions, published
from shardpiece.tokenizer.formats.huggingface_models import is_byte_level
from shardpiece.tokenizer.formats.oniguruma import spelled
from shardpiece.tokenizer.ranks import derive_merges
from shardpiece.tokenizer.tokenizer import Tokenizer

LONGEST_PIECE = 16_384
"""Bytes. The longest published one has some hundreds; deriving its merges takes the square of its length."""


def is_ranks(raw: bytes) -> bool:
    """Whether the first lines are those of a rank file."""
    lines = [line for line in raw[:2000].split(b"\n")[:-1] or [raw] if line.strip()][:8]
    return bool(lines) and all(_entry(line) is not None for line in lines)


def _entry(line: bytes) -> tuple[bytes, int] | None:
    encoded, _, rank = line.strip().partition(b" ")
    if not rank.isdigit() or len(rank) > 10:
        return None
    try:
        return binascii.a2b_base64(encoded, strict_mode=True), int(rank)
    except binascii.Error:
        return None


def read_entries(raw: bytes, source: str) -> dict[int, bytes]:
    """The bytes of each rank. Raises FormatError naming the line that is none or has a token or rank of another one."""
    pieces: dict[int, bytes] = {}
    line_of: dict[bytes, int] = {}
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        entry = _entry(line)
        if entry is None or not entry[0]:
            raise FormatError(
                f"{source}, line {number}: {line[:60].decode('utf-8', 'replace')!r} is not a token in base64, a space and "
                f"its rank"
            )
        piece, rank = entry
        if len(piece) > LONGEST_PIECE:
            raise FormatError(f"{source}, line {number}: a token of {len(piece):,} bytes, more than {LONGEST_PIECE:,}")
        if piece in line_of:
            raise FormatError(f"{source}, line {number}: the token {piece!r} of line {line_of[piece]} once more")
        if rank in pieces:
            raise FormatError(f"{source}, line {number}: rank {rank} is that of line {line_of[pieces[rank]]} too")
        pieces[rank] = piece
        line_of[piece] = number
    if not pieces:
        raise FormatError(f"{source}: no token in this file")
    return pieces


def dense(pieces: Mapping[int, bytes], special_ids: Sequence[int], source: str) -> list[bytes | None]:
    """The piece of each id, None for special tokens. Raises FormatError for an id that is neither, or both."""
    size = max(pieces) + 1
    taken = {i for i in special_ids if i < size}
    if both := sorted(taken & pieces.keys()):
        raise FormatError(f"{source}: the id {both[0]} of a special token is that of {pieces[both[0]]!r}")
    if size != len(pieces) + len(taken):
        gap = next(i for i in range(size) if i not in pieces and i not in taken)
        raise FormatError(
            f"{source}: {size - len(pieces) - len(taken):,} ids below the largest are no token, the first one {gap}: if "
            f"special tokens have them, give these with their ids"
        )
    return [pieces.get(i) for i in range(size)]


def read_ranks(raw: bytes, source: str, pretokenizer=None, special_tokens=None) -> Tokenizer:
    """The tokenizer of a rank file, as ``tiktoken.Encoding`` has it.

    ``pretokenizer``: a setting of TextEngine's; default that of the published vocabulary that the file is by name or content.
    ``special_tokens``: ids by text; texts, whose ids follow the ranks; the name of a published vocabulary; or None for those
    of the vocabulary the file is. Raises FormatError for a file that is none, and when nothing says what pattern it has.
    """
    pieces = read_entries(raw, source)
    known, vocabulary = "", None
    if pretokenizer is None or special_tokens is None:
        known, vocabulary = published.find(raw, source)
    if pretokenizer is None:
        pretokenizer = known
    if not pretokenizer:
        raise FormatError(
            f"{source}: a rank file holds no pattern, and this one is not named after a vocabulary that is known "
            f"({', '.join(published.PUBLISHED)}): give its pretokenizer, a name or a regular expression "
            f"(--tokenizer-pretokenizer, for convert --pretokenizer; shardpiece pretokenizers lists names)"
        )
    if special_tokens is None and known and vocabulary is None:
        raise FormatError(
            f"{source}: Llama 3 and 3.1 share these ranks and differ in their special tokens: name the file or its "
            f"directory llama3 or llama3.1, or give special_tokens"
        )
    if special_tokens is None:
        special_tokens = vocabulary.special_tokens if vocabulary is not None else {}
    special_tokens = special_ids(special_tokens, max(pieces) + 1)
    vocab = dense(pieces, [*special_tokens.values()], source)
    try:
        return Tokenizer(TextEngine.of(pretokenizer), BPEModel.from_ranks(vocab), special_tokens)
    except FormatError as error:
        raise FormatError(f"{source}: {error}") from None


def special_ids(special_tokens, size: int) -> dict[str, int]:
    """Ids by text from what ``read_ranks`` takes; ``size``: one more than the largest rank."""
    if isinstance(special_tokens, str):
        if special_tokens not in published.PUBLISHED:
            raise FormatError(
                f"special_tokens {special_tokens!r} is no published vocabulary ({', '.join(published.PUBLISHED)})"
            )
        return published.PUBLISHED[special_tokens].special_tokens
    if isinstance(special_tokens, Mapping):
        return dict(special_tokens)
    return {text: size + i for i, text in enumerate(special_tokens)}


# --- writing --------------------------------------------------------------------------------------------------------


def problem(tokenizer: Tokenizer) -> str | None:
    """Why tiktoken cannot do what this tokenizer does; None when it can."""
    added = companions.added_problem(tokenizer.added_tokens, "tiktoken", flags=False)
    return added or _model_problem(tokenizer) or engine_problem(tokenizer)


def engine_problem(tokenizer: Tokenizer) -> str | None:
    pattern = tokenizer.pretokenizer.pattern
    if tokenizer.engine.normalizer is not None or pattern is None:
        return f"tiktoken splits by one pattern and does not normalize, and this tokenizer has {tokenizer.engine.name}"
    [step] = tokenizer.pretokenizer.steps
    if step.dfa is None or not step.dfa.total:
        return (
            f"tiktoken drops what the pattern {pattern!r} does not match: let it match every character, such as by "
            f"adding |[\\s\\S]"
        )
    return None


def _model_problem(tokenizer: Tokenizer) -> str | None:
    model = tokenizer.model
    if not is_byte_level(model) or model.prefix or model.suffix:
        return f"tiktoken has byte-level BPE alone, and this model is one of kind {model.kind} over other units"
    special = {*tokenizer.special_tokens.values()}
    gaps = np.flatnonzero(~model.vocab.present).tolist()
    if wrong := [i for i in gaps if i not in special]:
        return f"tiktoken ranks need dense ids, and the id {wrong[0]} is no token"
    if gaps and gaps[0] == 0:
        return "tiktoken ranks need dense ids from 0, and here special tokens lie in front of them"
    return rank_problem(model)


def rank_problem(model: BPEModel) -> str | None:
    """Why the ids of a byte-level BPE do not say how it merges: any two neighbours whose bytes are a token, the lowest id
    first. See ``ranks`` for why one merge a token is enough to compare."""
    if np.any(np.diff(model.merged) < 0):
        r = int(np.flatnonzero(np.diff(model.merged) < 0)[0])
        a, b = (model.vocab[int(i)] for i in model.merged[r : r + 2])
        return (
            f"tiktoken ranks need token ids in merge order, and here {a!r} is merged before {b!r} and has a higher id"
        )
    implied = derive_merges(model.vocab, np.where(model.vocab.present, np.arange(len(model.vocab)), -1))
    own = _pair_keys(model.merges)
    missing = np.flatnonzero(~np.isin(_pair_keys(implied), own))
    if len(missing):
        a, b = (model.vocab[int(i)] for i in implied[missing[0]])
        return f"tiktoken merges any two neighbours that make a token, so {a!r} and {b!r}, which this tokenizer does not merge"
    if not model.ignore_merges and 256 + len(implied) < model.vocab.present.sum():
        reached = {*model.byte_ids.tolist()} | {
            model.vocab.ids[model.vocab[a] + model.vocab[b]] for a, b in implied.tolist()
        }
        piece = next(piece for i, piece in enumerate(model.vocab) if piece is not None and i not in reached)
        return f"tiktoken takes a word that is a token as that token, and no merges of this tokenizer lead to {piece!r}"
    return None


def _pair_keys(merges: np.ndarray) -> np.ndarray:
    return merges[:, 0].astype(np.int64) << 32 | merges[:, 1].astype(np.int64)


def pat_str(tokenizer: Tokenizer) -> str:
    """The pattern for ``tiktoken.Encoding``. Raises FormatError when there is more to the text engine than one pattern, or
    when that leaves text between its matches, which tiktoken would drop."""
    if (reason := engine_problem(tokenizer)) is not None:
        raise FormatError(reason)
    return spelled(tokenizer.pretokenizer.pattern)


def ranks(tokenizer: Tokenizer) -> dict[bytes, int]:
    """mergeable_ranks for ``tiktoken.Encoding``, beside ``pat_str``.

    tiktoken has no merge list: it merges the pair whose concatenation has the lowest id. Raises FormatError for a tokenizer
    that this rule is not enough for.
    """
    if (reason := problem(tokenizer)) is not None:
        raise FormatError(reason)
    return {token: i for i, token in enumerate(tokenizer.model.vocab) if token is not None}


def to_bytes(tokenizer: Tokenizer) -> bytes:
    """The content of a ``.tiktoken`` file; special tokens are not part of it."""
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks(tokenizer).items())
