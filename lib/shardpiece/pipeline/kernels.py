"""Compiling the Numba kernels ahead of the first task, once per installation and text engine, and saying so."""

import time
from pathlib import Path

import pyarrow as pa

import shardpiece
from shardpiece.kernel_cache import CACHE_DIRECTORY
from shardpiece.pipeline.progress import log
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.words import table as words

# Letters of several scripts, digits, marks, and everything else that makes a kernel take another path.
_SAMPLE = "The lowest 1234567 it's é\u0301 ﬁ  x\n\n中文かな हिन्दी ▁a == " * 8


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


def exercise() -> bool:
    """Count, encode, decode and train on a few words through every kernel; True when the results are right."""
    table = shardpiece.WordTable.from_texts(["low lower lowest"] * 3, "gpt2")
    words.content_sums(table.table)
    text = "lowest " + "=" * 300
    tokenizer = shardpiece.train_bpe(table, 262)
    tokens, _ = tokenizer.encode_documents(Documents.from_arrow(pa.array([text])))
    return tokenizer.decode(tokens) == text
