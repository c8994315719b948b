"""The BPE merge loop beside those of Hugging Face tokenizers and rustbpe, on the same words.

    python -m benchmarks.merge_loop [--input GLOB ...] [--megabytes 20] [--vocab-size 32768] [--repeats 5]

Ours is timed alone: the word table in memory → all merges. The peers have no such entry, so theirs is the time of the
whole training minus the time of training to 257 tokens (reading, splitting, counting, the first pair index, one
merge). All are interleaved in one process; the median of the repeats counts. The peers use every core, ours one.
Every merge is compared before anything is timed.
"""

import argparse
import statistics
import time

import numpy as np
import rustbpe
from rich.console import Console
from rich.table import Table
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import shardpiece
from benchmarks.corpora import read_texts, sets
from shardpiece.text.patterns import PATTERNS
from shardpiece.tokenizer.formats.huggingface import byte_level_order, spell
from shardpiece.training.merge_loop import learn_merges

PATTERN = "cl100k_base"


def hugging_face(texts: list[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[PATTERN]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def rust_bpe(texts: list[str], vocab_size: int) -> rustbpe.Tokenizer:
    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(iter(texts), vocab_size, pattern=PATTERNS[PATTERN])
    return tokenizer


def seconds(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(name: str, texts: list[str], vocab_size: int, repeats: int) -> list[str]:
    words = shardpiece.WordTable.from_texts(texts, PATTERN)
    arrays = words.arrays()
    order = np.empty(256, np.int32)
    order[byte_level_order()] = np.arange(256)

    def ours():
        return learn_merges(*arrays, vocab_size - 256, byte_ids=order, tie_break="id")

    trained = shardpiece.train_bpe(words, vocab_size, tie_break="id")
    peer = hugging_face(texts, vocab_size)
    assert peer.get_vocab() == {spell(token): i for i, token in enumerate(trained.model.vocab)}, "Hugging Face differs"
    raw = shardpiece.train_bpe(words, vocab_size, tie_break="id", alphabet_order="raw")
    ranks = sorted(rust_bpe(texts, vocab_size).get_mergeable_ranks(), key=lambda item: item[1])
    assert [bytes(token) for token, _ in ranks] == list(raw.model.vocab), "rustbpe differs"

    calls = {
        "ours": ours,
        "hf": lambda: hugging_face(texts, vocab_size),
        "hf 257": lambda: hugging_face(texts, 257),
        "rust": lambda: rust_bpe(texts, vocab_size),
        "rust 257": lambda: rust_bpe(texts, 257),
    }
    times: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(repeats):
        for key, call in calls.items():
            times[key].append(seconds(call))
    median = {key: statistics.median(values) for key, values in times.items()}
    hf, rust = median["hf"] - median["hf 257"], median["rust"] - median["rust 257"]
    size = sum(len(text.encode()) for text in texts) / 1e6
    return [
        name,
        f"{size:.0f}",
        f"{len(arrays[2]):,}",
        f"{len(arrays[0]) / 1e6:.1f}",
        f"{median['ours']:.2f} ({min(times['ours']):.2f}–{max(times['ours']):.2f})",
        f"{median['hf']:.1f} - {median['hf 257']:.1f} = {hf:.1f}",
        f"{hf / median['ours']:.1f}×",
        f"{median['rust']:.1f} - {median['rust 257']:.1f} = {rust:.1f}",
        f"{rust / median['ours']:.1f}×",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--vocab-size", type=int, default=32_768)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    table = Table(
        title=f"{options.vocab_size - 256:,} merges, median of {options.repeats} interleaved; merges all equal"
    )
    for column in ("text", "MB", "words", "M symbols", "ours s", "Hugging Face s", "ratio", "rustbpe s", "ratio"):
        table.add_column(column, justify="right")
    for name, paths in sets(options.input, ("code", "web_multilingual", "books")).items():
        table.add_row(*measure(name, read_texts(paths, options.megabytes), options.vocab_size, options.repeats))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
