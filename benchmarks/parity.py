"""Parity-aware BPE beside plain BPE: how unequal the languages' token counts are for the same content, and at what cost.

    python -m benchmarks.parity [--collection bible] [--languages 40] [--vocab-sizes 16384 32768] [--window 100]

The texts are translations of the same documents (the shared parallel corpus). Of seven documents, one is held out for
the figures, one is the development text that parity is measured on, five are for counting pairs: of every language the
same five (even), or of every language less text than of the one before, 1 / sqrt(rank) (uneven), as corpora are. The
languages' ranks are an arbitrary but fixed order. All tokenizers see the same word table and have as many tokens.

The cost of a language is its tokens per held-out document. Gini: of the costs, 0 when all are equal. Worst: the
largest cost over the mean. B/token: bytes per token of all held-out text, which counts every language's document the
same. Time: the median of interleaved runs in one thread, word table in memory → all merges, beside plain BPE
(learn_merges, on the words summed over languages).
"""

import argparse
import hashlib
import itertools
import statistics
import time
from collections import defaultdict
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.corpora import sets
from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.training.merge_loop import learn_merges
from shardpiece.training.parity import ParityResult, learn_parity_merges
from shardpiece.words.counter import WordCounter

ALPHABET = [bytes([b]) for b in range(256)]
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def parallel_texts(paths, collection: str, most: int) -> dict[str, dict[str, str]]:
    """Translation → key → text, the keys that all of them have. Translations are taken by number of documents, those
    that would leave fewer than half of the keys are left out."""
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        table = pq.read_table(path, columns=["id", "text"])
        table = table.filter(pc.starts_with(table["id"], collection + ":")).drop_null()
        for name, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True):
            key, _, language = name.rpartition(":")
            texts[language][key] = text
    names = sorted(texts, key=lambda name: (-len(texts[name]), name))
    if not names:
        raise SystemExit(f"no documents of the collection {collection!r}")
    keys = set(texts[names[0]])
    least = len(keys) / 2
    chosen = []
    for name in names:
        if len(chosen) < most and len(keys & texts[name].keys()) >= least:
            keys &= texts[name].keys()
            chosen.append(name)
    return {name: {key: texts[name][key] for key in sorted(keys)} for name in sorted(chosen)}


def count(texts: dict[str, list[str]], engine: TextEngine) -> Arrays:
    """Words by group, sorted: (data, starts, counts, groups)."""
    counter = WordCounter()
    batches: list[pa.RecordBatch] = []
    for name, documents in texts.items():
        words = engine.split(Documents.from_strings(documents))
        batches.extend(counter.add(words, [name] * len(documents)))
    batches.extend(counter.drain())
    table = pa.Table.from_batches(batches).group_by(["word", "group"], use_threads=False).aggregate([("count", "sum")])
    table = table.sort_by([("word", "ascending"), ("group", "ascending")]).combine_chunks()
    words = Documents.raw(table["word"].chunk(0).cast(pa.large_binary()))
    groups = pc.index_in(table["group"], pa.array(list(texts))).combine_chunks()
    return words.data[: words.offsets[-1]], words.offsets, table["count_sum"].to_numpy(), groups.to_numpy()


def without_groups(words: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Equal neighbours added up: data, starts, counts of distinct words."""
    data, starts, counts, _ = words
    pieces = [data[a:b].tobytes() for a, b in itertools.pairwise(starts.tolist())]
    total: dict[bytes, int] = defaultdict(int)
    for piece, times in zip(pieces, counts.tolist(), strict=True):
        total[piece] += times
    ends = np.cumsum([0, *map(len, total)], dtype=np.int64)
    return read_only(np.frombuffer(b"".join(total), np.uint8)), read_only(ends), np.array([*total.values()], np.int64)


def costs(merges: np.ndarray, texts: dict[str, list[str]], engine: TextEngine) -> np.ndarray:
    """Tokens per document of each language."""
    vocab = list(ALPHABET)
    for left, right in merges.tolist():
        vocab.append(vocab[left] + vocab[right])
    encoder = BPEModel(tuple(vocab), merges).encoder()
    tokens = [len(encoder.encode(engine.split(Documents.from_strings(texts[name])))[0]) for name in texts]
    return np.array(tokens) / len(next(iter(texts.values())))


def gini(values: np.ndarray) -> float:
    """Mean absolute difference of all pairs over twice the mean."""
    return float(np.abs(values[:, None] - values[None, :]).mean() / (2 * values.mean()))


def thinned(texts: list[str], share: float) -> list[str]:
    """About that share of the texts' characters, from their beginnings."""
    return [text[: int(len(text) * share)] for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with id and text; default: the shared corpus")
    parser.add_argument("--collection", default="bible")
    parser.add_argument("--languages", type=int, default=40)
    parser.add_argument("--vocab-sizes", type=int, nargs="*", default=[16_384, 32_768])
    parser.add_argument("--pattern", default="cl100k_base")
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    [paths] = sets(options.input, ("parallel",)).values()
    parallel = parallel_texts(paths, options.collection, options.languages)
    n = len(parallel)
    engine = TextEngine.of(options.pattern)
    parts = [{name: list(texts.values())[part::7] for name, texts in parallel.items()} for part in range(7)]
    held_out, development, *rest = parts
    even = {name: [text for part in rest for text in part[name]] for name in parallel}
    ranked = sorted(parallel, key=lambda name: hashlib.md5(name.encode()).digest())
    uneven = {name: thinned(even[name], (1 + ranked.index(name)) ** -0.5) for name in parallel}
    measured = count(development, engine)
    size = sum(len(text.encode()) for texts in held_out.values() for text in texts)
    documents = len(next(iter(held_out.values())))
    for kind, training in (("even", even), ("uneven", uneven)):
        words = count(training, engine)
        megabytes = sum(len(text.encode()) for texts in training.values() for text in texts) / 1e6
        table = Table(
            title=f"{options.collection}, {n} languages, {kind}: {megabytes:.1f} MB, {len(words[2]):,} words by "
            f"language, {len(words[0]) / 1e6:.1f} M symbols"
        )
        for column in ("vocab", "training", "Gini", "worst", "B/token", "time", "global merges", "groups that chose"):
            table.add_column(column, justify="right")
        plain_words = without_groups(words)

        def learn(n_merges: int, words=words, **settings) -> ParityResult:
            ones = np.ones(n, np.int64)
            return learn_parity_merges(*words, n, ALPHABET, n_merges, development=measured, units=ones, **settings)

        learn(300, num_global=100)  # compiles
        for vocab_size in options.vocab_sizes:
            m, window = vocab_size - 256, options.window
            runs = {
                "plain": partial(learn_merges, *plain_words, ALPHABET, m),
                "all global": partial(learn, m, num_global=m),
                "hybrid, half": partial(learn, m, num_global=m // 2),
                f"window {window}": partial(learn, m, window=window),
                f"hybrid, half, window {window}": partial(learn, m, num_global=m // 2, window=window),
                "parity": partial(learn, m),
            }
            results, times = {}, defaultdict(list)
            for _ in range(options.repeats):
                for name, run in runs.items():
                    began = time.perf_counter()
                    results[name] = run()
                    times[name].append(time.perf_counter() - began)
            assert np.array_equal(results["plain"].merges, results["all global"].merges), "global merges differ"
            base = statistics.median(times["plain"])
            for name, result in results.items():
                seconds = statistics.median(times[name])
                row = [f"{256 + len(result.merges):,}", name]
                if name == "all global":
                    row += ["as plain", "", ""]
                else:
                    paid = costs(result.merges, held_out, engine)
                    row += [f"{gini(paid):.4f}", f"{paid.max() / paid.mean():.2f}"]
                    row += [f"{size / (paid.sum() * documents):.3f}"]
                row += [f"{seconds:.2f} s {seconds / base:.1f}×"]
                if name != "plain":
                    chose = result.groups[result.groups >= 0]
                    row += [f"{len(result.groups) - len(chose):,}", f"{len(np.unique(chose))}"]
                table.add_row(*row)
        Console(width=130).print(table)


if __name__ == "__main__":
    main()
