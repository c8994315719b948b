"""``shardpiece stats``: what is in shards, from the manifest and the statistics that encoding left."""

from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.shards.manifest import read_manifest
from shardpiece.shards.statistics import GROUP_FIGURES, Statistics, bin_range, summed
from shardpiece.tokenizer.pieces import readable
from shardpiece.tokenizer.tokenizer import Tokenizer

_BAR = 40


@dataclass(frozen=True)
class ShardReport:
    """``tokenizer``: to show tokens as text; None without."""

    directory: str
    manifest: dict
    statistics: Statistics
    tokenizer: Tokenizer | None


def report_of(directory: str, tokenizer: Tokenizer | None = None) -> ShardReport:
    """Raises FormatError when there are no finished shards, or another tokenizer made them."""
    directory = storage.absolute(directory)
    manifest = read_manifest(directory)
    if tokenizer is not None and tokenizer.fingerprint != manifest["tokenizer"]:
        raise FormatError(
            f"{directory}: encoded with the tokenizer {manifest['tokenizer'][:12]}…, this one is "
            f"{tokenizer.fingerprint[:12]}…"
        )
    paths = [storage.join(directory, file["name"]) for file in manifest["statistics"]]
    return ShardReport(directory, manifest, summed(paths, manifest["vocab_size"]), tokenizer)


def as_object(report: ShardReport) -> dict:
    """Everything, for JSON."""
    statistics = report.statistics
    used = np.flatnonzero(statistics.frequencies)
    return {
        "totals": report.manifest["totals"],
        "shards": len(report.manifest["shards"]),
        "increments": len(report.manifest["increments"]),
        "groups": {
            name: dict(zip(GROUP_FIGURES, statistics.groups[name].tolist(), strict=True))
            for name in sorted(statistics.groups)
        },
        "lengths": [
            {"from": first, "to": last, "documents": n}
            for (first, last), n in zip(
                map(bin_range, range(len(statistics.lengths))), statistics.lengths.tolist(), strict=True
            )
            if n
        ],
        "vocab_size": report.manifest["vocab_size"],
        "tokens_never_used": len(statistics.frequencies) - len(used),
        "frequencies": {str(token): int(statistics.frequencies[token]) for token in used.tolist()},
    }


def print_report(report: ShardReport, top: int) -> None:
    console = Console(highlight=False)
    said = as_object(report)
    totals = said["totals"]
    console.print(
        f"{report.directory}: {said['shards']:,} shards of {', '.join(report.manifest['formats'])}, "
        f"{said['increments']:,} increments, {len(report.manifest['input']):,} input files",
        soft_wrap=True,
    )
    console.print(_groups(said["groups"], totals))
    console.print(_lengths(said["lengths"], totals["documents"]))
    if top:
        console.print(_tokens(report, top))
    console.print(f"{said['tokens_never_used']:,} of {said['vocab_size']:,} tokens occur nowhere")


def _groups(groups: dict[str, dict], totals: dict) -> Table:
    table = Table(title="what there is", title_justify="left")
    table.add_column("group")
    for column in ("documents", "bytes", "tokens", "share", "bytes/token", "tokens/document"):
        table.add_column(column, justify="right")
    rows = sorted(groups.items(), key=lambda group: (-group[1]["tokens"], group[0]))
    for name, figures in [*((name or "(none)", figures) for name, figures in rows), ("all", totals)]:
        documents, size, tokens = (figures[column] for column in GROUP_FIGURES)
        share = tokens / totals["tokens"] if totals["tokens"] else 0.0
        table.add_row(
            escape(name), f"{documents:,}", f"{size:,}", f"{tokens:,}", f"{share:.1%}",
            f"{size / tokens:.3f}" if tokens else "", f"{tokens / documents:,.1f}" if documents else "",
        )  # fmt: skip
    return table


def _lengths(lengths: list[dict], documents: int) -> Table:
    table = Table(title="tokens per document", title_justify="left")
    for column in ("from", "to", "documents", "share"):
        table.add_column(column, justify="right")
    table.add_column("")
    most = max((entry["documents"] for entry in lengths), default=1)
    for entry in lengths:
        table.add_row(
            f"{entry['from']:,}", f"{entry['to']:,}", f"{entry['documents']:,}", f"{entry['documents'] / documents:.1%}",
            "█" * max(1, round(_BAR * entry["documents"] / most)),
        )  # fmt: skip
    return table


def _tokens(report: ShardReport, top: int) -> Table:
    frequencies = report.statistics.frequencies
    table = Table(title="most frequent tokens", title_justify="left")
    for column in ("token", "count", "share"):
        table.add_column(column, justify="right")
    if report.tokenizer is not None:
        table.add_column("text")
    total = max(1, report.statistics.tokens)
    for token in np.argsort(-frequencies, kind="stable")[:top].tolist():
        if not frequencies[token]:
            break
        text = [] if report.tokenizer is None else [escape(readable(report.tokenizer.token_bytes(token)))]
        table.add_row(str(token), f"{frequencies[token]:,}", f"{frequencies[token] / total:.2%}", *text)
    return table
