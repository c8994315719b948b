"""How encoding time grows with the length of a text without white space: documents of 0.1, 1 and 10 MB, each one word to those
tokenizers that do not cut it.

    python -m benchmarks.long_words [--tokenizer NAME ...] [--text NAME ...] [--megabytes 0.1 1 10] [--repeats 3]

Seconds of one document, the shortest of --repeats, each with an encoder that knows nothing yet; kernels are compiled before.
"growth": time over time of the length before, of the ten times longer text. m log m would be 12 from 0.1 to 1 MB and 11.7 from
1 to 10; caches that a text outgrows add to it.
"""

import argparse
import base64
import itertools
import os
import random
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import shardpiece
from benchmarks.encode import SUBJECTS
from shardpiece.text.documents import Documents

MORE = {
    "clip": "clip-hf/tokenizer.json",
    "gemma3": "lenml-gemma3/tokenizer.json",
    "xlnet": "xlnet-unigram/xlnet_base_cased.model",
}


def _bytes(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


TEXTS = {
    "one letter": lambda n: b"a" * n,
    "one sign": lambda n: b"=" * n,
    "spaces": lambda n: b" " * n,
    "random bytes": lambda n: _bytes(n, 1).decode(errors="replace").encode()[:n].decode(errors="ignore").encode(),
    "random letters": lambda n: _bytes(n, 2).translate(bytes(ord("a") + b % 26 for b in range(256))),
    "base64": lambda n: base64.b64encode(_bytes(n * 3 // 4, 3)),
    "Chinese": lambda n: "".join(random.Random(4).choices([chr(c) for c in range(0x4E00, 0x5200)], k=n // 3)).encode(),
}


def seconds(tokenizer: shardpiece.Tokenizer, text: bytes, repeats: int) -> float:
    documents = Documents.from_strings([text.decode()])
    best = float("inf")
    for _ in range(repeats):
        tokenizer.use_cache()
        began = time.perf_counter()
        tokenizer.encode_documents(documents)
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    paths = {name: subject.path for name, subject in SUBJECTS.items()} | MORE
    parser.add_argument("--tokenizer", action="append", choices=paths)
    parser.add_argument("--text", action="append", choices=TEXTS)
    parser.add_argument("--megabytes", nargs="+", type=float, default=[0.1, 1, 10])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    shared = Path(os.environ.get("SHARDPIECE_SHARED", "../shared")) / "vocabs"
    table = Table(title="seconds of one document")
    for column in ("tokenizer", "text", *(f"{size:g} MB" for size in arguments.megabytes), "growth"):
        table.add_column(column, justify="left" if column in ("tokenizer", "text") else "right")
    for name in arguments.tokenizer or paths:
        tokenizer = shardpiece.load(str(shared / paths[name]))
        for text in arguments.text or TEXTS:
            seconds(tokenizer, TEXTS[text](10_000), 1)
            times = [
                seconds(tokenizer, TEXTS[text](int(size * 1e6)), arguments.repeats) for size in arguments.megabytes
            ]
            growth = (f"{b / a:.1f}" for a, b in itertools.pairwise(times))
            table.add_row(name, text, *(f"{time:.3f}" for time in times), ", ".join(growth))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
