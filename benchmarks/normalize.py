"""Normalization beside Hugging Face's normalizers and SentencePiece's, on one core, same text.

    python -m benchmarks.normalize [--input GLOB ...] [--megabytes 4] [--repeats 3]

Every result is compared with the peer's before anything is timed. Interleaved in one process; the median counts. Peers
are called once per document and give Python strings, which is part of their cost.
"""

import argparse
import os
import statistics
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from rich.console import Console
from rich.table import Table
from sentencepiece import SentencePieceNormalizer
from tokenizers import Regex, normalizers

from benchmarks.corpora import read_texts, sets
from shardpiece.text.documents import Documents
from shardpiece.text.normalization.charsmap_rules import named_charsmap
from shardpiece.text.normalizers import normalizer


def cases() -> list[tuple[str, object, object, str]]:
    """Name, our setting, the peer's call, whose it is."""
    charsmap = {"type": "charsmap", "rule": "nmt_nfkc", "reference": "huggingface"}
    precompiled = normalizers.Precompiled(named_charsmap("nmt_nfkc").to_bytes())
    hugging_face = [
        ("nfc", "nfc", normalizers.NFC()),
        ("nfd", "nfd", normalizers.NFD()),
        ("nfkc", "nfkc", normalizers.NFKC()),
        ("lowercase", "lowercase", normalizers.Lowercase()),
        ("bert", "bert", normalizers.BertNormalizer()),
        ("strip", "strip", normalizers.Strip()),
        ("prepend", {"type": "prepend", "text": "▁"}, normalizers.Prepend("▁")),
        ("replace", {"type": "replace", "literal": " ", "content": "▁"}, normalizers.Replace(" ", "▁")),
        ("collapse_spaces", "collapse_spaces", normalizers.Replace(Regex(" {2,}"), " ")),
        ("charsmap", charsmap, precompiled),
    ]
    found = [(name, setting, peer.normalize_str, "Hugging Face") for name, setting, peer in hugging_face]
    for rule in ("nmt_nfkc", "nmt_nfkc_cf"):
        peer = SentencePieceNormalizer(rule_name=rule)
        found.append((rule, {"type": "sentencepiece", "rule": rule}, peer.normalize, "SentencePiece"))
    return found


def measure(setting, peer, texts: list[str], repeats: int) -> tuple[float, float]:
    """MB/s of ours and the peer."""
    documents = Documents.from_strings(texts)
    ours = normalizer(setting)
    out = ours.normalize(documents)
    assert all(out.text(d) == peer(text) for d, text in enumerate(texts)), setting
    times: list[list[float]] = [[], []]
    for _ in range(repeats):
        for call, kept in zip(
            (lambda: ours.normalize(documents), lambda: [peer(text) for text in texts]), times, strict=True
        ):
            began = time.perf_counter()
            call()
            kept.append(time.perf_counter() - began)
    size = documents.size / 1e6
    return tuple(size / statistics.median(kept) for kept in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="*", help="Parquet files with a text column; default: the shared corpora")
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    table = Table(title=f"normalizing, MB/s on one core, median of {options.repeats} interleaved; results all equal")
    for column in ("text", "normalizer", "ours", "peer", "its MB/s", "ratio"):
        table.add_column(column, justify="right")
    for text, paths in sets(options.input, ("code", "web_multilingual", "books")).items():
        texts = read_texts(paths, options.megabytes)
        for name, setting, peer, whose in cases():
            ours, theirs = measure(setting, peer, texts, options.repeats)
            table.add_row(text, name, f"{ours:.0f}", whose, f"{theirs:.1f}", f"{ours / theirs:.0f}×")
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
