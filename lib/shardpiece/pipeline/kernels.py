"""Compiling the Numba kernels ahead of the first task, once per installation and text engine, and saying so."""

import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

import shardpiece
from shardpiece.errors import ShardpieceError
from shardpiece.kernel_cache import CACHE_DIRECTORY
from shardpiece.pipeline.progress import log
from shardpiece.shards.statistics import Statistics
from shardpiece.shards.token_buffer import TokenBuffer
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.sampling import Sampling
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.train_config import TrainConfig
from shardpiece.training import trainers
from shardpiece.training.monitor import Monitor
from shardpiece.words import packed
from shardpiece.words import table as words
from shardpiece.words.counter import WordCounter

# Letters of several scripts, digits, marks, and everything else that makes a kernel take another path.
_SAMPLE = "The lowest 1234567 it's é\u0301 ﬁ  x\n\n中文かな हिन्दी ▁a == " * 8

_WORDS = ["low lower lowest newest widest 日本語 été 12 low lower"] * 3


def prepare_kernels(engine: TextEngine) -> None:
    """Compile what is not in the on-disk cache yet, the kernels this text engine needs among them; workers on this
    machine then load it from there."""
    done = Path(CACHE_DIRECTORY) / f"compiled-{engine.fingerprint[:32]}"
    if done.exists():
        return
    began = time.monotonic()
    if not any(Path(CACHE_DIRECTORY).rglob("merge_kernels.merge_pairs-*.nbi")):
        log("compiling the kernels, once per installation")
        exercise()
    engine.split(Documents.from_strings([_SAMPLE, "", "<|endoftext|>"]))
    done.touch()
    seconds = time.monotonic() - began
    if seconds > 2:
        log(f"compiled in {seconds:.0f} s, cached in {CACHE_DIRECTORY}")


def prepare_encoding(tokenizer: Tokenizer, dtype: np.dtype, sampling: Sampling | None) -> None:
    """``prepare_kernels`` for a tokenizer and shards whose ids are of ``dtype``: its encoder and the copying of ids too."""
    prepare_kernels(tokenizer.engine)
    kind = dtype.name + ("" if sampling is None else "-sampled")
    done = Path(CACHE_DIRECTORY) / f"compiled-encode-{tokenizer.fingerprint[:32]}-{kind}"
    if done.exists():
        return
    began = time.monotonic()
    documents = Documents.from_strings([_SAMPLE[:60], ""])
    with suppress(ShardpieceError):  # a sample that it has no tokens for
        if sampling is not None:
            tokenizer.encode_documents(documents, sampling=sampling)
        tokens, offsets = tokenizer.encode_documents(documents)
        buffer = TokenBuffer(dtype, tokenizer.vocab_size, (), (), True, len(documents), documents.size)
        buffer.add(tokens, offsets, documents.offsets)
        Statistics.empty(tokenizer.vocab_size).add(*buffer.take())
    done.touch()
    seconds = time.monotonic() - began
    if seconds > 2:
        log(f"encode: compiled the kernels of this tokenizer in {seconds:.0f} s, cached in {CACHE_DIRECTORY}")


def prepare_training(config: TrainConfig) -> None:
    """Compile what this algorithm needs and is not in the cache yet, by training on a few words."""
    name = "-".join([config.algorithm, config.style or "any", config.criterion, *(["parity"] if config.parity else []),
                     *(["cut"] if config.cut else [])])  # fmt: skip
    done = Path(CACHE_DIRECTORY) / f"compiled-train-{name}"
    if done.exists():
        return
    began = time.monotonic()
    table = shardpiece.WordTable.from_texts(
        _WORDS, "metaspace" if config.style == "sentencepiece" else "whitespace_split"
    )
    small = config.model_copy(
        update={
            "vocab_size": 2048 + len(config.special_tokens) + config.reserved_slots, "vocab_sizes": [], "weights": None,
            "temperature": None, "min_count": 1, "continue_from": None, "reserved_tokens": [], "limit_alphabet": None,
        }
    )  # fmt: skip
    if config.parity:
        parity = config.parity.model_copy(update={"units": None, "development": None, "num_global": 2})
        small = small.model_copy(update={"parity": parity})
        groups = pa.array(["a", "b"] * len(table))[: len(table)]
        table = shardpiece.WordTable(table.table.set_column(1, "group", groups), table.metadata)
    try:
        trainers.train_sizes(table, small, monitor=Monitor())
    except ShardpieceError:
        return  # settings that so little text cannot have; the training itself will compile
    done.touch()
    seconds = time.monotonic() - began
    if seconds > 2:
        log(f"train: compiled the kernels of {config.algorithm} in {seconds:.0f} s, cached in {CACHE_DIRECTORY}")


def exercise() -> bool:
    """Count, encode, decode and train on a few words through every kernel; True when the results are right."""
    table = shardpiece.WordTable.from_texts(["low lower lowest"] * 3, "gpt2")
    words.content_sums(table.table)
    counter = WordCounter()
    list(counter.add(table.engine.split(Documents.from_strings(["low lower lowest"]))))
    list(packed.merge([piece for _, piece in counter.drain_packed([b"lower"])]))
    text = "lowest " + "=" * 300
    tokenizer = shardpiece.train_bpe(table, 262)
    tokens, _ = tokenizer.encode_documents(Documents.from_arrow(pa.array([text])))
    return tokenizer.decode(tokens) == text
