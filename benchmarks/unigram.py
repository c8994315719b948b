"""Unigram training and its vocabularies beside SentencePiece's.

    python -m benchmarks.unigram [--input GLOB ...] [--megabytes 16] [--vocab-size 8000 16000] [--threads 2]

Every fifth document is held out. Both train on the lines of the others (no line left out), with SentencePiece's nmt_nfkc
and defaults, each training in a process of its own: seconds from the texts in memory to the pieces (ours: normalizing,
splitting and counting included), and the process's peak memory less what it took before. Ours compiles its kernels
before the clock starts.

Both vocabularies are then judged by the same code, ours: nats per character of the held-out text, once for the best
segmentation (Viterbi) and once for the sum over all (marginal), with the scores as trained and with scores scaled so
that the pieces' probabilities have the sum one; and bytes per token. Characters outside the alphabet (the same in both)
cost nothing in the likelihoods.
"""

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import shardpiece
from benchmarks.corpora import read_texts, sets
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.trie_kernels import build_trie
from shardpiece.tokenizer.unigram import UnigramModel
from shardpiece.training import unigram_kernels as k
from shardpiece.training.unigram import learn_unigram

SPECIAL = 3  # SentencePiece's <unk>, <s> and </s>
CORPORA = ("web_multilingual", "parallel", "books")


def engine() -> TextEngine:
    return TextEngine("metaspace_never", {"type": "sentencepiece", "rule": "nmt_nfkc"})


def lines_of(texts: list[str]) -> list[str]:
    return [line for text in texts for line in text.split("\n")]


def ours(lines: list[str], vocab_size: int, threads: int) -> tuple[list[bytes], list[float]]:
    words = shardpiece.WordTable.from_texts(lines, engine())
    result = learn_unigram(*words.arrays(), vocab_size - SPECIAL, threads=threads)
    return result.pieces, result.scores.tolist()


def sentencepiece(lines: list[str], vocab_size: int, threads: int) -> tuple[list[bytes], list[float]]:
    import sentencepiece as spm

    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="unigram", vocab_size=vocab_size,
        max_sentence_length=1 << 30, input_sentence_size=0, num_threads=threads, minloglevel=2,
    )  # fmt: skip
    trained = spm.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(SPECIAL, len(trained))
    return [trained.id_to_piece(i).encode() for i in ids], [trained.get_score(i) for i in ids]


TRAINERS = {"ours": ours, "sentencepiece": sentencepiece}


def peak_kilobytes() -> int:
    """Of this process since it was started (ru_maxrss would begin at its parent's)."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])


def train_here(trainer: str, job: Path) -> None:
    """In the child: read the job, train, write the result beside it."""
    given = json.loads(job.read_text())
    if trainer == "ours":
        ours(["some words to compile with, some words", "and some more, more words"], 40, 1)
    before = peak_kilobytes()
    began = time.perf_counter()
    pieces, scores = TRAINERS[trainer](given["lines"], given["vocab_size"], given["threads"])
    seconds = time.perf_counter() - began
    peak = peak_kilobytes() - before
    result = {
        "pieces": [piece.decode() for piece in pieces], "scores": scores, "seconds": seconds, "megabytes": peak / 1e3
    }  # fmt: skip
    job.with_suffix(f".{trainer}").write_text(json.dumps(result))


def train(trainer: str, job: Path) -> dict:
    subprocess.run([sys.executable, "-m", "benchmarks.unigram", "--job", str(job), "--trainer", trainer], check=True)
    return json.loads(job.with_suffix(f".{trainer}").read_text())


def judge(pieces: list[str], scores: list[float], lines: list[str]) -> dict[str, float]:
    """Figures of a vocabulary on held-out lines."""
    vocab = (None, *(piece.encode() for piece in pieces))
    model = UnigramModel(vocab, np.array([0.0, *scores]), 0)
    words = engine().split(Documents.from_strings(lines))
    tokens, _ = model.encoder().encode(words)
    text = words.data[words.start : words.start + words.size]
    characters = int(np.count_nonzero((text & 0xC0) != 0x80))
    viterbi = float(model.scores[tokens].sum())
    of_all = float(np.log(np.exp(model.scores[1:]).sum()))
    # The marginal: the E step of the training over the same words.
    known = {c: n + 1 for n, c in enumerate(sorted({c for piece in pieces for c in piece}))}
    log_likelihood, expected = marginal(model, words, known)
    return {
        "bytes per token": words.size / len(tokens),
        "Viterbi": -viterbi / characters,
        "Viterbi, scaled": (-viterbi + of_all * np.count_nonzero(tokens)) / characters,
        "marginal": -log_likelihood / characters,
        "marginal, scaled": (-log_likelihood + of_all * expected) / characters,
        "unknown": int((tokens == 0).sum()),
    }


def marginal(model: UnigramModel, words, known: dict[str, int]) -> tuple[float, float]:
    """(log-likelihood, expected number of pieces) of all words without their unknown characters."""
    segments: Counter[tuple[int, ...]] = Counter()
    for word, count in Counter(w for document in words.to_list() for w in document).items():
        part: list[int] = []
        for character in word.decode():
            number = known.get(character, 0)
            if number:
                part.append(number)
                continue
            if part:
                segments[tuple(part)] += count
            part = []
        if part:
            segments[tuple(part)] += count
    text = np.array([c for segment in segments for c in segment], np.int32)
    starts = np.cumsum([0, *map(len, segments)], dtype=np.int64)
    spelled = sorted(
        (tuple(known[c] for c in p.decode()), s) for p, s in zip(model.vocab[1:], model.scores[1:], strict=True)
    )
    symbols = np.array([c for piece, _ in spelled for c in piece], np.int32)
    offsets = np.cumsum([0, *(len(piece) for piece, _ in spelled)], dtype=np.int64)
    nodes, node_of = build_trie(symbols, offsets, len(known) + 1)
    weight = np.empty(len(spelled))
    k.weights(np.array([score for _, score in spelled]), offsets, 2.0, weight)
    nodes["weight"][node_of] = weight
    longest, most = int(np.diff(starts).max()) + 1, int(np.diff(offsets).max())
    edges = longest * most
    expected = np.zeros(len(nodes))
    total = k.expect(
        text, starts, np.array(list(segments.values()), np.int64), 0, len(segments), nodes, most, 2.0, expected,
        np.empty(longest), np.empty(longest), np.empty(edges, np.int32), np.empty(edges, np.int32), np.empty(edges),
        np.empty(longest, np.int64), np.empty(longest, np.int8),
    )  # fmt: skip
    return total, float(expected.sum())


def measure(name: str, paths: list[Path], options) -> list[list[str]]:
    texts = read_texts(paths, options.megabytes * 1.25)
    held_out = lines_of(texts[::5])
    lines = lines_of([text for i, text in enumerate(texts) if i % 5])
    size = sum(len(line.encode()) for line in lines) / 1e6
    rows = []
    for vocab_size in options.vocab_size:
        with tempfile.TemporaryDirectory() as directory:
            job = Path(directory) / "job.json"
            job.write_text(json.dumps({"lines": lines, "vocab_size": vocab_size, "threads": options.threads}))
            results = {trainer: train(trainer, job) for trainer in TRAINERS}
        figures = {trainer: judge(r["pieces"], r["scores"], held_out) for trainer, r in results.items()}
        common = len(set(results["ours"]["pieces"]) & set(results["sentencepiece"]["pieces"]))
        for trainer, r in results.items():
            f = figures[trainer]
            compared = [
                f"{f[key]:.4f}" + (f" ({f[key] / figures['sentencepiece'][key] - 1:+.2%})" if trainer == "ours" else "")
                for key in ("Viterbi", "Viterbi, scaled", "marginal", "marginal, scaled", "bytes per token")
            ]
            rows.append(
                [name, f"{size:.0f}", f"{vocab_size:,}", trainer, f"{r['seconds']:.1f}", f"{r['megabytes']:,.0f}", *compared,
                 f"{f['unknown']:,}", f"{common / len(r['pieces']):.1%}"]
            )  # fmt: skip
            print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--corpora", nargs="*", default=CORPORA, help="groups of the shared corpora")
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--vocab-size", type=int, nargs="*", default=[8000, 16_000])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--trainer", choices=list(TRAINERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        train_here(options.trainer, options.job)
        return
    table = Table(title=f"Unigram, {options.threads} threads; nats per character and bytes per token on held-out text")
    for column in (
        "text", "MB", "pieces", "trainer", "s", "MB memory", "Viterbi", "Viterbi, scaled", "marginal", "marginal, scaled",
        "bytes per token", "unknown", "common",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for name, paths in sets(options.input, tuple(options.corpora)).items():
        for row in measure(name, paths, options):
            table.add_row(*row)
    Console(width=220).print(table)


if __name__ == "__main__":
    main()
