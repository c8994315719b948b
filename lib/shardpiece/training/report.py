"""How a tokenizer cuts the table it was trained on: the final frequency of every token."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np

from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer.pieces import readable
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.training import report_kernels as k
from shardpiece.words.table import WordTable

_BATCH_BYTES = 4 << 20
_CACHE_BYTES = 1 << 16


def token_frequencies(tokenizer: Tokenizer, tables: Iterable[WordTable], threads: int = 0) -> np.ndarray:
    """How often each token occurs in the text that the words of all ``tables`` stand for: int64 [vocab_size], exact, with
    any number of ``threads`` (0: as many as there are cores)."""
    threads = threads or os.cpu_count() or 1
    # No word comes twice, so a cache finds nothing.
    encoders = [tokenizer.model.encoder(_CACHE_BYTES) for _ in range(threads)]
    sums = np.zeros((threads, tokenizer.vocab_size), np.int64)

    def count(thread: int, arrays, batches: list[tuple[int, int]]) -> None:
        data, starts, counts = arrays
        for first, last in batches[thread::threads]:
            ends = starts[first + 1 : last + 1]
            words = Words(data, int(starts[first]), ends, np.arange(1, len(ends) + 1))
            tokens, offsets = encoders[thread].encode(words)
            k.add_frequencies(tokens, offsets, read_only(counts[first:last]), sums[thread])

    with ThreadPoolExecutor(threads) as pool:
        for table in tables:
            arrays = table.arrays()
            batches = _batches(arrays[1])
            list(pool.map(count, range(threads), repeat(arrays), repeat(batches)))
    return sums.sum(axis=0)


def _batches(starts: np.ndarray) -> list[tuple[int, int]]:
    """(first word, last word) of parts of the table of some megabytes."""
    batches = []
    first = 0
    while first < len(starts) - 1:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + _BATCH_BYTES, "right")) - 1)
        batches.append((first, last))
        first = last
    return batches


def never_used(tokenizer: Tokenizer, frequencies: np.ndarray) -> int:
    """Tokens of the model that the table's words, as they are cut in the end, do not contain: merges made them and others
    took their place."""
    return int(
        sum(piece is not None and not n for piece, n in zip(tokenizer.model.vocab, frequencies.tolist(), strict=False))
    )


def vocabulary_table(tokenizer: Tokenizer, frequencies: np.ndarray) -> bytes:
    """vocab.tsv: a line for every id with its frequency, its kind, the piece for people, and its bytes in hexadecimal."""
    special = {i: text for text, i in tokenizer.special_tokens.items()}
    vocab = list(tokenizer.model.vocab)
    lines = ["id\tfrequency\tkind\tpiece\tbytes"]
    for i, frequency in enumerate(frequencies.tolist()):
        if i in special:
            kind, piece = "special", special[i].encode()
        elif i < len(vocab) and vocab[i] is not None:
            kind, piece = "token", vocab[i]
        else:
            kind, piece = "none", b""
        lines.append(f"{i}\t{frequency}\t{kind}\t{readable(piece)}\t{piece.hex()}")
    return ("\n".join(lines) + "\n").encode()
