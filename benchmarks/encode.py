"""Encoding with published tokenizers beside the libraries they come from, on one core, same text.

    python -m benchmarks.encode [--tokenizer NAME ...] [--text NAME ...] [--repeats 3]

MB/s of UTF-8. *Cold*: the first part of the text (20 MB; Chinese and Japanese 10) from an encoder that knows nothing but its
vocabulary; *steady*: the next part, half as long, which it has not seen: what a job on a corpus gets; *warm*: that part once
more, which flatters every cache. The median of the repeats, each with a new encoder, ours and gigatoken's in turn.

tiktoken, Hugging Face (``encode_batch_fast``) and SentencePiece (a list of texts to lists of ids) have a megabyte to warm up
and one to be timed, twice, the faster one counts: their speed does not depend on what they have seen. They begin with Python
texts and end with Python lists or objects, gigatoken with bytes, we with an Arrow column, and end with arrays. Ids are
compared with the reference's before anything is timed. Ratios are to the steady speed.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import shardpiece
from benchmarks.corpora import sets
from shardpiece.text.documents import Documents

BATCH_BYTES = 2_000_000
GROUPS = ("web_multilingual", "code", "books", "parallel")


@dataclass(frozen=True)
class Subject:
    """A published tokenizer: where it is, and how the rivals load it."""

    path: str
    reference: str
    gigatoken: tuple[str, str] | None = None


SUBJECTS = {
    "gpt2": Subject("r50k_base/r50k_base.tiktoken", "tiktoken", ("from_tiktoken", "r50k_base/r50k_base.tiktoken")),
    "cl100k": Subject("cl100k_base/cl100k_base.tiktoken", "tiktoken", ("from_tiktoken", "cl100k_base/cl100k_base.tiktoken")),
    "o200k": Subject("o200k_base/o200k_base.tiktoken", "tiktoken", ("from_tiktoken", "o200k_base/o200k_base.tiktoken")),
    "llama3": Subject("lenml-llama3_1/tokenizer.json", "tokenizers", ("from_json", "lenml-llama3_1/tokenizer.json")),
    "bert": Subject("bert-uncased-minilm/tokenizer.json", "tokenizers"),
    "t5": Subject("t5-base-unigram/spiece.model", "sentencepiece"),
    "mistral-v1": Subject("mistral-v1/tokenizer.model", "sentencepiece", ("from_sentencepiece", "mistral-v1/tokenizer.model")),
}  # fmt: skip
TEXTS = {
    "English": (("web_multilingual", "books", "parallel"), lambda lang: lang == "en", 20),
    "60 languages": (("web_multilingual",), lambda lang: lang != "en", 20),
    "code": (("code",), lambda lang: True, 20),
    "Chinese, Japanese": (("web_multilingual", "books", "parallel"), lambda lang: lang[:2] in ("zh", "ja"), 10),
}


def batches(name: str) -> tuple[list[pa.Array], list[pa.Array]]:
    """Batches of documents of about BATCH_BYTES, in an order that has no meaning: the first part and the second."""
    groups, wanted, megabytes = TEXTS[name]
    paths = sets(None, GROUPS)
    table = pa.concat_tables(
        [pq.read_table(path, columns=["text", "lang"]) for group in groups for path in paths[group]]
    )
    table = table.filter(pa.array([wanted(lang) for lang in table["lang"].to_pylist()]))
    text = table["text"].drop_null().cast(pa.large_string()).combine_chunks()
    text = text.take(pa.array(np.random.default_rng(1).permutation(len(text))))
    ends = np.cumsum(pc.binary_length(text).to_numpy())
    first, last = np.searchsorted(ends, (megabytes * 1e6, 1.5 * megabytes * 1e6))
    return cut(text.slice(0, first)), cut(text.slice(first, last - first))


def cut(text: pa.Array) -> list[pa.Array]:
    sizes = np.cumsum(pc.binary_length(text).to_numpy())
    borders = np.unique(np.searchsorted(sizes, np.arange(0, sizes[-1], BATCH_BYTES)))
    return [text.slice(a, b - a) for a, b in zip(borders, [*borders[1:], len(text)], strict=True) if b > a]


def megabytes(parts: list[pa.Array]) -> float:
    return sum(pc.sum(pc.binary_length(part)).as_py() or 0 for part in parts) / 1e6


def seconds(call: Callable, parts: list) -> float:
    started = time.perf_counter()
    for part in parts:
        call(part)
    return time.perf_counter() - started


def three_speeds(make: Callable[[], Callable], first: list, second: list, sizes: tuple[float, float]) -> list[float]:
    call = make()
    return [sizes[0] / seconds(call, first), sizes[1] / seconds(call, second), sizes[1] / seconds(call, second)]


def reference(subject: Subject, shared: Path) -> Callable[[list[str]], list[list[int]]]:
    """Texts to ids by the library the tokenizer comes from, special tokens in text as text."""
    path = str(shared / subject.path)
    match subject.reference:
        case "tiktoken":
            import tiktoken
            from tiktoken.load import load_tiktoken_bpe

            from shardpiece.text.patterns import PATTERNS

            name = {"r50k_base": "gpt2"}.get(Path(path).stem, Path(path).stem)
            encoding = tiktoken.Encoding(
                name, pat_str=PATTERNS[name], mergeable_ranks=load_tiktoken_bpe(path), special_tokens={}
            )
            return lambda texts: [encoding.encode_ordinary(text) for text in texts]
        case "tokenizers":
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(path)
            tokenizer.no_truncation()
            tokenizer.no_padding()
            tokenizer.encode_special_tokens = True
            return lambda texts: [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        case "sentencepiece":
            from sentencepiece import SentencePieceProcessor

            processor = SentencePieceProcessor(model_file=path)
            return lambda texts: processor.encode(texts, out_type=int, num_threads=1)


def ours(tokenizer: shardpiece.Tokenizer) -> Callable[[], Callable]:
    def make():
        tokenizer.use_cache()  # an empty one; making its tables is no part of the time
        return lambda part: tokenizer.encode_documents(Documents.from_arrow(part))

    return make


def gigatoken(subject: Subject, shared: Path) -> Callable[[], Callable] | None:
    """None where it cannot load the tokenizer."""
    if subject.gigatoken is None:
        return None
    from gigatoken import Tokenizer

    constructor, path = subject.gigatoken

    def make():
        source = shared / path
        tokenizer = getattr(Tokenizer, constructor)(source.read_text() if constructor == "from_json" else str(source))
        return lambda part: tokenizer.encode_batch(part, parallel=False)

    try:
        make()([b"probe"])
    except Exception as error:
        print(f"gigatoken cannot be used with {path}: {error}")
        return None
    return make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", action="append", choices=SUBJECTS)
    parser.add_argument("--text", action="append", choices=TEXTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-rivals", action="store_true", help="ours alone")
    arguments = parser.parse_args()
    shared = Path(os.environ.get("SHARDPIECE_SHARED", "../shared")) / "vocabs"
    table = Table(title="MB/s on one core: cold / steady / warm; × is ours over theirs, steady")
    for column in ("text", "tokenizer", "shardpiece", "gigatoken", "×", "reference", "MB/s", "×"):
        table.add_column(column, justify="left" if column in ("text", "tokenizer", "reference") else "right")
    for text in arguments.text or TEXTS:
        first, second = batches(text)
        sizes = megabytes(first), megabytes(second)
        raw = [[value.encode() for value in part.to_pylist()] for part in (*first, *second)]
        raw_first, raw_second = raw[: len(first)], raw[len(first) :]
        sample = [part.slice(0, max(1, int(len(part) * min(1.0, 1e6 / max(part.nbytes, 1))))) for part in second[:2]]
        for name in arguments.tokenizer or SUBJECTS:
            subject = SUBJECTS[name]
            tokenizer = shardpiece.load(str(shared / subject.path))
            make_ours, make_gigatoken = ours(tokenizer), gigatoken(subject, shared)
            if arguments.no_rivals:
                make_gigatoken = None
            speed = {"reference": 0.0, "ours": [], "gigatoken": []}
            if not arguments.no_rivals:
                encode = reference(subject, shared)
                for part in sample:
                    texts = part.to_pylist()
                    started = time.perf_counter()
                    expected = encode(texts)
                    rate = megabytes([part]) / (time.perf_counter() - started)
                    speed["reference"] = max(speed["reference"], rate)
                    if tokenizer.encode_batch(part).to_pylist() != expected:
                        raise SystemExit(f"{name}, {text}: not the ids of {subject.reference}")
            for _ in range(arguments.repeats):
                speed["ours"].append(three_speeds(make_ours, first, second, sizes))
                if make_gigatoken:
                    speed["gigatoken"].append(three_speeds(make_gigatoken, raw_first, raw_second, sizes))
            mine, theirs = (np.median(speed[who], axis=0) if speed[who] else None for who in ("ours", "gigatoken"))
            table.add_row(
                text, name, " / ".join(f"{x:.0f}" for x in mine),
                "" if theirs is None else " / ".join(f"{x:.0f}" for x in theirs),
                "" if theirs is None else f"{mine[1] / theirs[1]:.2f}",
                subject.reference, f"{speed['reference']:.1f}",
                f"{mine[1] / speed['reference']:.1f}" if speed["reference"] else "",
            )  # fmt: skip
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
