"""The BPE merge loop beside those of Hugging Face tokenizers, rustbpe and gigatoken, on the same text.

    python -m benchmarks.merge_loop [--input GLOB ...] [--megabytes 20] [--vocab-size 32768] [--repeats 5]
    python -m benchmarks.merge_loop --synthetic 5,10,20

Ours is timed alone: the word table in memory → all merges. The peers have no such entry, so theirs is the time of the
whole training minus the time of training to 257 tokens (reading, splitting, counting, the first pair index, one
merge). All are interleaved in one process; the median of the repeats counts. The peers use every core, ours one.
Every merge of Hugging Face and rustbpe is compared before anything is timed. gigatoken splits in its own way (the GPT-2
pattern, over the texts joined by line breaks), so its words differ somewhat, and its merges are not compared.

--synthetic measures size instead: tables of so many million distinct words, those of the shared corpora and pairs of
them joined, with the counts of a Zipf tail (half of the pairs are there once), always the same ones; 128,000 merges.
Each is trained in a process of its own; "over" is the peak of its memory less what the table in memory takes.
"""

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import gigatoken
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import rustbpe
from rich.console import Console
from rich.table import Table
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import shardpiece
from benchmarks.corpora import read_texts, sets
from shardpiece.text.byte_alphabet import byte_level_order, spell
from shardpiece.text.patterns import PATTERNS
from shardpiece.training.merge_loop import learn_merges

PATTERN = "cl100k_base"
GROUPS = ("code", "web_multilingual", "books")
SYNTHETIC_MERGES = 128_000


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
    alphabet = [bytes([b]) for b in byte_level_order()]
    byte_ids = np.empty(256, np.int32)
    byte_ids[byte_level_order()] = np.arange(256)

    def ours():
        return learn_merges(*arrays, alphabet, vocab_size - 256, symbol_ids=byte_ids, tie_break="id")

    learned = list(alphabet)
    for a, b in ours().merges.tolist():
        learned.append(learned[a] + learned[b])
    peer = hugging_face(texts, vocab_size)
    assert peer.get_vocab() == {spell(token): i for i, token in enumerate(learned)}, "Hugging Face differs"
    raw = [bytes([b]) for b in range(256)]
    for a, b in learn_merges(*arrays, raw, vocab_size - 256, tie_break="id").merges.tolist():
        raw.append(raw[a] + raw[b])
    ranks = sorted(rust_bpe(texts, vocab_size).get_mergeable_ranks(), key=lambda item: item[1])
    assert [bytes(token) for token, _ in ranks] == raw, "rustbpe differs"

    joined = "\n".join(texts).encode()
    peers = {
        "hf": lambda size: hugging_face(texts, size),
        "rust": lambda size: rust_bpe(texts, size),
        "giga": lambda size: gigatoken.train_bpe(joined, size, []),
    }
    calls = {"ours": ours}
    for key, call in peers.items():
        calls[key] = lambda call=call: call(vocab_size)
        calls[f"{key} 257"] = lambda call=call: call(257)
    times: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(repeats):
        for key, call in calls.items():
            times[key].append(seconds(call))
    median = {key: statistics.median(values) for key, values in times.items()}
    row = [
        name,
        f"{len(joined) / 1e6:.0f}",
        f"{len(arrays[2]):,}",
        f"{len(arrays[0]) / 1e6:.1f}",
        f"{median['ours']:.2f} ({min(times['ours']):.2f}–{max(times['ours']):.2f})",
    ]
    for key in peers:
        loop = median[key] - median[f"{key} 257"]
        row += [f"{median[key]:.1f} - {median[f'{key} 257']:.1f} = {loop:.1f}", f"{loop / median['ours']:.1f}×"]
    return row


def make_synthetic(directory: str, millions: float) -> None:
    """Write a table of so many million words as three arrays."""
    wanted = int(millions * 1e6)
    texts = [text for paths in sets(None, GROUPS).values() for text in read_texts(paths, 1e6)]
    table = shardpiece.WordTable.from_texts(texts, PATTERN).table
    words, counts = table["word"].combine_chunks(), table["count"].to_numpy()
    words, counts = words[:wanted], counts[:wanted]
    short = words.filter(pc.less_equal(pc.binary_length(words), 16))
    n, missing = len(short), wanted - len(words)
    # All pairs differ: the i-th is (i mod n, (i mod n) + a step that grows with every round), spread over the table.
    order = np.random.default_rng(7).permutation(n)
    i = np.arange(missing)
    left, right = order[i % n], order[(i % n + 1 + i // n) % n]
    pairs = pc.binary_join_element_wise(
        short.take(pa.array(left)), short.take(pa.array(right)), pa.scalar(b"", short.type)
    )
    words = pa.concat_arrays([words, pairs])
    counts = np.concatenate([counts, np.minimum(1000, missing // (1 + i))])
    by_word = pc.sort_indices(words)
    words = words.take(by_word)
    starts = np.frombuffer(words.buffers()[1], np.int64)[words.offset : words.offset + len(words) + 1]
    np.save(f"{directory}/data.npy", np.frombuffer(words.buffers()[2], np.uint8)[starts[0] : starts[-1]])
    np.save(f"{directory}/starts.npy", starts - starts[0])
    np.save(f"{directory}/counts.npy", counts[by_word.to_numpy()])


def peak() -> int:
    """Bytes of memory this process has used at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train_synthetic(directory: str) -> list[str]:
    arrays = tuple(np.load(f"{directory}/{name}.npy") for name in ("data", "starts", "counts"))
    alphabet = [bytes([b]) for b in range(256)]
    learn_merges(np.frombuffer(b"abab", np.uint8), np.array([0, 2, 4]), np.array([3, 4]), alphabet, 2)  # compile
    before = peak()
    began = time.perf_counter()
    merges = learn_merges(*arrays, alphabet, SYNTHETIC_MERGES).merges
    elapsed = time.perf_counter() - began
    symbols = len(arrays[0])
    over = peak() - before
    return [
        f"{len(arrays[2]) / 1e6:.1f}",
        f"{symbols / 1e6:.0f}",
        f"{len(merges):,}",
        f"{elapsed:.1f}",
        f"{elapsed / symbols * 1e9:.0f}",
        f"{peak() / 1e9:.2f}",
        f"{over / 1e9:.2f}",
        f"{over / symbols:.1f}",
    ]


def in_new_process(function, *arguments):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def synthetic(sizes: list[float]) -> None:
    table = Table(title="synthetic tables")
    for column in ("M words", "M symbols", "merges", "s", "ns/symbol", "peak GB", "over GB", "bytes/symbol"):
        table.add_column(column, justify="right")
    for millions in sizes:
        with tempfile.TemporaryDirectory() as directory:
            in_new_process(make_synthetic, directory, millions)
            table.add_row(*in_new_process(train_synthetic, directory))
    Console(width=160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--vocab-size", type=int, default=32_768)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--synthetic", help="sizes in millions of words, separated by commas")
    options = parser.parse_args()
    if options.synthetic:
        synthetic([float(size) for size in options.synthetic.split(",")])
        return
    table = Table(
        title=f"{options.vocab_size - 256:,} merges, median of {options.repeats} interleaved; merges of Hugging Face and rustbpe all equal"
    )
    columns = ("text", "MB", "words", "M symbols", "ours s", "Hugging Face s", "", "rustbpe s", "", "gigatoken s", "")
    for column in columns:
        table.add_column(column, justify="right")
    for name, paths in sets(options.input, GROUPS).items():
        table.add_row(*measure(name, read_texts(paths, options.megabytes), options.vocab_size, options.repeats))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
