"""Training byte-level BPE tokenizers from a word table."""

from collections.abc import Callable, Sequence

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer, Setting
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.formats import huggingface_text
from shardpiece.tokenizer.formats.huggingface import byte_level_order
from shardpiece.tokenizer.tokenizer import Tokenizer, check_special_tokens
from shardpiece.training.merge_loop import MAX_WORD_BYTES, learn_merges
from shardpiece.words.table import WordTable

ALPHABET_ORDERS = ("byte-level", "raw")


def train_bpe(
    words: WordTable,
    vocab_size: int,
    *,
    tie_break: str = "lexicographic",
    alphabet_order: str = "byte-level",
    min_frequency: int = 1,
    max_token_length: int | None = None,
    special_tokens: Sequence[str] = (),
    engine: TextEngine | PreTokenizer | Setting | None = None,
    progress: Callable[[int, int], None] | None = None,
    log: Callable[[str], None] | None = None,
) -> Tokenizer:
    """Train a byte-level BPE tokenizer of ``vocab_size`` tokens: 256 bytes, merges, then the special tokens.

    ``tie_break`` decides between pairs of equal count: "lexicographic" (the smaller pair of byte strings), "id" (the
    smaller pair of ids, as Hugging Face and rustbpe), "first_seen" (the pair that stands first in the table as merged
    so far), "lexicographic_last" (the larger pair of byte strings, as subword-nmt). ``alphabet_order`` numbers the
    bytes: "byte-level" as GPT-2 and Hugging Face's trainer, "raw" by value as rustbpe and minbpe.

    ``min_frequency``: merges stop when the most frequent pair is rarer. ``max_token_length``: in bytes, inclusive.
    ``engine``: only for a table that does not say which it was counted with; a different one is an error.
    When the table is exhausted early the vocabulary is smaller than asked, and ``log`` is told.

    Raises ConfigError for settings that cannot work, TrainingError when memory does not suffice.
    """
    engine = _engine(words, engine)
    huggingface_text.check(engine)  # or it would fail after the training
    special_tokens = check_special_tokens(special_tokens)
    if alphabet_order not in ALPHABET_ORDERS:
        raise ConfigError(f"alphabet_order {alphabet_order!r} is not one of {', '.join(ALPHABET_ORDERS)}")
    least = 256 + len(special_tokens)
    if vocab_size < least:
        raise ConfigError(
            f"vocab_size {vocab_size} is too small: 256 bytes and {len(special_tokens)} special tokens need {least}"
        )
    order = byte_level_order() if alphabet_order == "byte-level" else list(range(256))
    byte_ids = np.empty(256, np.int32)
    byte_ids[order] = np.arange(256)

    data, starts, counts = words.arrays()
    lengths = np.diff(starts)
    if len(lengths) and lengths.max() > MAX_WORD_BYTES:
        keep = lengths <= MAX_WORD_BYTES
        if log:
            log(f"{int((~keep).sum()):,} words of more than {MAX_WORD_BYTES:,} bytes are left out of training")
        data, starts, counts = _select(data, starts, counts, keep)
    if len(counts) == 0:
        raise TrainingError("the word table is empty: nothing to train on")
    wanted = vocab_size - least
    result = learn_merges(
        data, starts, counts, wanted,
        byte_ids=byte_ids, tie_break=tie_break, min_frequency=min_frequency, max_token_length=max_token_length,
        reserved=tuple(token.encode() for token in special_tokens), progress=progress, log=log,
    )  # fmt: skip
    found = len(result.merges)
    if found < wanted and log:
        log(
            f"the table is exhausted after {found:,} merges: the vocabulary has {least + found:,} tokens, "
            f"not {vocab_size:,} (min_frequency {min_frequency})"
        )
    vocab = [bytes([b]) for b in order]
    for a, b in result.merges.tolist():
        vocab.append(vocab[a] + vocab[b])
    provenance = {
        "algorithm": "bpe",
        "settings": {
            "vocab_size": vocab_size,
            "tie_break": tie_break,
            "alphabet_order": alphabet_order,
            "min_frequency": min_frequency,
            "max_token_length": max_token_length,
        },
        "words": {"fingerprint": words.fingerprint, "distinct": len(counts), "total": int(counts.sum())},
        "merges": found,
        "last_merge_count": int(result.counts[-1]) if found else None,
    }
    return Tokenizer(engine, BPEModel(tuple(vocab), result.merges), special_tokens, provenance)


def _engine(words: WordTable, given: TextEngine | PreTokenizer | Setting | None) -> TextEngine:
    counted = words.engine
    wanted = None if given is None else TextEngine.of(given)
    if counted is None and wanted is None:
        raise ConfigError("the word table does not say which pre-tokenizer it was counted with: pass engine=")
    if counted is not None and wanted is not None and counted.fingerprint != wanted.fingerprint:
        raise ConfigError(
            f"the word table was counted with {counted.name}, not with {wanted.name}: count again, or train with the "
            f"table's own"
        )
    return counted or wanted


def _select(data, starts, counts, keep):
    pieces = [data[starts[i] : starts[i + 1]] for i in np.flatnonzero(keep)]
    kept = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=kept[1:])
    chosen = np.frombuffer(b"".join(piece.tobytes() for piece in pieces), np.uint8)
    kept.flags.writeable = False
    return chosen, kept, counts[keep]
