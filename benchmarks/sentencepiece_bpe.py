"""BPE in SentencePiece's style beside its own trainer: the pieces, the length of unseen text in tokens, and the time.

    python -m benchmarks.sentencepiece_bpe [--input GLOB ...] [--megabytes 30] [--vocab-sizes 8192 16384] [--repeats 3]

Both train on the same lines (every second document; lines that spell a reserved piece are left out, for their trainer
skips or cuts them) with byte fallback and a character coverage of 0.9995. The other documents are encoded by the
sentencepiece library with both model files; a sample of them by ours too, which must give the same ids. Times are whole
trainings, reading the lines from memory: ours counts words in one thread, theirs has two; interleaved, the median counts.
"""

import argparse
import io
import statistics
import time
import warnings

import sentencepiece
from rich.console import Console
from rich.table import Table

import shardpiece
from benchmarks.corpora import read_texts, sets
from shardpiece.tokenizer.formats import sentencepiece as model_file
from shardpiece.tokenizer.formats import sentencepiece_tokenizer

ENGINE = shardpiece.TextEngine("metaspace_never", {"type": "sentencepiece", "rule": "nmt_nfkc"})
COVERAGE = 0.9995
RESERVED = ("▅", "<s>", "</s>", "<unk>")


def theirs(lines: list[str], vocab_size: int) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=vocab_size, byte_fallback=True,
        character_coverage=COVERAGE, max_sentence_length=1 << 24, num_threads=2, minloglevel=2,
    )  # fmt: skip
    return out.getvalue()


def ours(lines: list[str], vocab_size: int) -> shardpiece.Tokenizer:
    words = shardpiece.WordTable.from_texts(lines, ENGINE)
    return shardpiece.train_bpe(words, vocab_size, style="sentencepiece", character_coverage=COVERAGE)


def lines_of(texts: list[str]) -> list[str]:
    lines = (line for text in texts for line in text.split("\n") if line.strip())
    return [line for line in lines if not any(text in line for text in RESERVED)]


def tokens(raw: bytes, lines: list[str]) -> list[list[int]]:
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(raw)
    return processor.encode(lines, num_threads=2)


def seconds(call):
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def measure(name: str, texts: list[str], vocab_size: int, repeats: int) -> list[str]:
    lines, unseen = lines_of(texts[::2]), lines_of(texts[1::2])
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(repeats):
        tokenizer, taken = seconds(lambda: ours(lines, vocab_size))
        times["ours"].append(taken)
        peer, taken = seconds(lambda: theirs(lines, vocab_size))
        times["theirs"].append(taken)
    mine = sentencepiece_tokenizer.to_bytes(tokenizer)
    pieces, others = model_file.read_model(mine).pieces, model_file.read_model(peer).pieces
    encoded = tokens(mine, unseen)
    sample = range(0, len(unseen), max(1, len(unseen) // 2000))
    assert tokenizer.encode_batch([unseen[i] for i in sample]).to_pylist() == [encoded[i] for i in sample], (
        "our encoder"
    )
    size = sum(len(line.encode()) for line in unseen)
    mean, peer_mean = (size / sum(map(len, ids)) for ids in (encoded, tokens(peer, unseen)))
    median = {key: statistics.median(values) for key, values in times.items()}
    first = next((i for i, (a, b) in enumerate(zip(pieces, others, strict=False)) if a != b), None)
    return [
        name,
        f"{sum(len(line.encode()) for line in lines) / 1e6:.1f} + {size / 1e6:.1f}",
        f"{vocab_size:,}",
        "all, in order" if pieces == others else f"{len({*pieces} & {*others}):,}; order from {first:,} on",
        f"{mean:.4f}",
        f"{peer_mean:.4f}",
        f"{100 * (mean / peer_mean - 1):+.2f} %",
        f"{median['ours']:.1f}",
        f"{median['theirs']:.1f}",
        f"{median['theirs'] / median['ours']:.1f}×",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--megabytes", type=float, default=30, help="half to train on, half to encode")
    parser.add_argument("--vocab-sizes", type=int, nargs="*", default=[8192, 16_384])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", shardpiece.errors.ShardpieceWarning)
    ours(["compile the kernels, and the rest"] * 2, 300)
    table = Table(title=f"sentencepiece {sentencepiece.__version__}; bytes/token on unseen documents")
    columns = ("text", "MB", "vocabulary", "pieces in common", "ours", "theirs", "", "ours s", "theirs s", "ratio")
    for column in columns:
        table.add_column(column, justify="right")
    for name, paths in sets(options.input, ("code", "web_multilingual", "books")).items():
        texts = read_texts(paths, options.megabytes)
        for vocab_size in options.vocab_sizes:
            table.add_row(*measure(name, texts, vocab_size, options.repeats))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
