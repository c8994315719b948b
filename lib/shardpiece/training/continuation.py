"""Learning further merges on top of a tokenizer that exists: a new language or domain for a model that is trained already.

All its ids stay. Words are cut into its tokens first, and these are the base symbols of the merge loop, so that a new token is
a sequence of old ones. A sequence that spells what is a token already (other merges lead there) is never merged.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from shardpiece.errors import ConfigError
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer.bpe import BYTES, BPEModel
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.tokenizer.vocabulary import Vocabulary
from shardpiece.train_config import TrainConfig
from shardpiece.training.layout import Layout
from shardpiece.training.prepare import Prepared


def in_style_of(base: Tokenizer | None, config: TrainConfig) -> TrainConfig:
    """``config`` with the style of the tokenizer that is extended. Raises ConfigError for one that is no BPE."""
    if base is None:
        return config
    model = base.model
    if model.kind != "bpe":
        raise ConfigError(f"continue_from takes a BPE tokenizer, not one of kind {model.kind}")
    style = "byte-level" if model.alphabet == BYTES else "end-of-word" if model.suffix else "continuing"
    if style == "continuing" and not model.prefix:
        style = "sentencepiece"
    return config.model_copy(update={"style": style})


def check_base(base: Tokenizer, prepared: Prepared) -> None:
    """Raises ConfigError for a tokenizer that cannot be extended with this table."""
    if base.engine.fingerprint != prepared.engine.fingerprint:
        raise ConfigError(
            f"continue_from: the tokenizer has {base.engine.name}, and the word table was counted with "
            f"{prepared.engine.name}: count again with the tokenizer's normalizer and pre-tokenizer"
        )


def tokens_of_words(model: BPEModel, data: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every word as ids of ``model``: (int32, starts int64 [w + 1])."""
    n = len(starts) - 1
    return model.encoder().encode(Words(data, int(starts[0]), starts[1:], np.arange(1, n + 1)))


def new_layout(base: Tokenizer, layout: Layout) -> Layout:
    """The special tokens and slots that the old tokenizer does not have, behind everything."""
    new = [token for token in layout.special_tokens if token not in base.special_tokens]
    return Layout(new, "back", layout.reserved_slots, layout.multiple_of)


def base_symbols(base: Tokenizer, prepared: Prepared) -> tuple[np.ndarray, np.ndarray, list[bytes], np.ndarray]:
    """(symbols int32, starts int64, the spelling of each symbol, its id int32). What the old vocabulary cannot spell is -1."""
    model = base.model
    fallback = set(model.byte_ids.tolist()) if model.byte_fallback else set()
    ids = [i for i, piece in enumerate(model.vocab) if piece is not None and i not in fallback and i != model.unk_id]
    symbol_of = np.full(base.vocab_size, -1, np.int32)
    symbol_of[ids] = np.arange(len(ids))
    tokens, starts = tokens_of_words(model, prepared.data, prepared.starts)
    return symbol_of[tokens], read_only(starts), [model.vocab[i] for i in ids], np.array(ids, np.int32)


def extended(
    base: Tokenizer, layout: Layout, ids: np.ndarray, merges: np.ndarray, engine, provenance: dict
) -> Tokenizer:
    """The old tokenizer with ``merges`` (int32 [m, 2], of symbols ``ids`` and new ones) behind its own."""
    old, prefix = base.model, base.model.prefix
    vocab = [*old.vocab, *(None for _ in range(base.vocab_size - len(old)))]
    of_symbol = [*ids.tolist()]
    added = []
    for a, b in merges.tolist():
        left, right = of_symbol[a], of_symbol[b]
        of_symbol.append(len(vocab))
        added.append((left, right))
        vocab.append(vocab[left] + vocab[right].removeprefix(prefix))
    special = {**base.special_tokens, **layout.ids(len(vocab), [*base.special_tokens])}
    merges = np.concatenate([old.merges, np.array(added, np.int32).reshape(-1, 2)])
    model = replace(old, vocab=Vocabulary.of(vocab), merges=merges)
    provenance = {**provenance, "continued_from": base.fingerprint}
    return replace(base, engine=engine, model=model, special_tokens=special, provenance=provenance)


def transplant(base: Tokenizer, new: Tokenizer) -> pa.Table:
    """What every new token was made of: columns id (int32), piece (binary) and old_ids (list of int32), its cut into tokens
    of the old tokenizer. The mean of their embedding rows is a common start for the new row."""
    parts: dict[int, Sequence[int]] = {}
    first = len(base.model.merges)
    for (a, b), i in zip(new.model.merges[first:].tolist(), new.model.merged[first:].tolist(), strict=True):
        parts[i] = [*parts.get(a, [a]), *parts.get(b, [b])]
    return pa.table(
        {
            "id": pa.array(list(parts), pa.int32()),
            "piece": pa.array([new.model.vocab[i] for i in parts], pa.binary()),
            "old_ids": pa.array(list(parts.values()), pa.list_(pa.int32())),
        }
    )
