"""Compiling the Numba kernels ahead of the first task, once per installation, and saying so."""

import time
from pathlib import Path

import shardpiece
from shardpiece.pipeline.progress import log
from shardpiece.text.documents import Documents
from shardpiece.tokenizer.encode_kernels import encode_words
from shardpiece.training.merge_kernels import merge_pairs
from shardpiece.words import table as words
from shardpiece.words.count_kernels import count_words


def prepare_kernels() -> None:
    """Compile what is not in the on-disk cache yet; workers on this machine then load it from there."""
    if all(_cached(kernel) for kernel in (count_words, merge_pairs, encode_words)):
        return
    began = time.monotonic()
    log("compiling the kernels, once per installation")
    exercise()
    log(f"compiled in {time.monotonic() - began:.0f} s, cached in {cache_directory()}")


def exercise() -> bool:
    """Count, train, encode and decode a few words through every kernel; True when the result is right."""
    table = shardpiece.WordTable.from_texts(["low lower lowest"] * 3, "gpt2")
    words.content_sums(table.table)
    tokenizer = shardpiece.train_bpe(table, 262)
    text = "lowest " + "=" * 300
    ids, _ = tokenizer.encode_documents(Documents.from_strings([text]))
    return tokenizer.decode(ids) == text


def cache_directory() -> str:
    """Where Numba keeps compiled kernels: beside the modules, in NUMBA_CACHE_DIR, or in the user's cache."""
    return count_words.stats.cache_path


def _cached(kernel) -> bool:
    function = kernel.py_func
    pattern = f"{Path(function.__code__.co_filename).stem}.{function.__name__}-*.nbi"
    return any(Path(kernel.stats.cache_path).glob(pattern))
