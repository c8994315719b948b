"""What a sweep comes to: its plots, tables, and sentences to choose a tokenizer by."""

from itertools import pairwise
from typing import Any

from shardpiece.evaluation import schema
from shardpiece.evaluation.report import tables, values
from shardpiece.evaluation.report.summary import MATTERS, Finding
from shardpiece.evaluation.report.tables import Cell, Column, Table, cell
from shardpiece.evaluation.report.values import Metric, counted, listed, whole_percent

_METRICS = (
    Metric("bytes_per_token", "Bytes/token", "ratio"),
    Metric("characters_per_token", "Characters/token", "ratio"),
    Metric("fertility", "Fertility", "ratio"),
    Metric("continued_words", "Continued words", "share"),
    Metric("single_token_common_words", "Common words in one token", "share"),
    Metric("unk_rate", "Unknown tokens", "share"),
    Metric("renyi_efficiency", "Rényi efficiency", "small"),
)


def series_of(sweep: schema.Sweep) -> dict[str, list[schema.SweepCell]]:
    """Cells by algorithm and weighting, each by size."""
    several = len({cell.weights for cell in sweep.cells}) > 1
    found: dict[str, list[schema.SweepCell]] = {}
    for one in sorted(sweep.cells, key=lambda one: one.vocab_size):
        found.setdefault(f"{one.algorithm} ({one.weights})" if several else one.algorithm, []).append(one)
    return dict(sorted(found.items()))


def summary(sweep: schema.Sweep) -> list[Finding]:
    found = [
        Finding("Compression", _compression(sweep), "curves-section"),
        Finding("Size", _size(sweep), "curves-section"),
        Finding("Balance", _balance(sweep), "groups-section"),
    ]
    return [finding for finding in found if finding.sentences]


def _by_size(sweep: schema.Sweep) -> dict[int, list[tuple[str, schema.SweepCell]]]:
    """Of each size the cells that lose no text, with the name of their series."""
    found: dict[int, list[tuple[str, schema.SweepCell]]] = {}
    for name, cells in series_of(sweep).items():
        for one in cells:
            if one.overall.tokens and not values.loses_text(one.overall):
                found.setdefault(one.vocab_size, []).append((name, one))
    return dict(sorted(found.items()))


def _compression(sweep: schema.Sweep) -> list[str]:
    sentences = []
    for size, cells in _by_size(sweep).items():
        (best, first), *others = sorted(cells, key=lambda item: (item[1].overall.tokens, item[0]))
        ratios = [(name, one.overall.tokens / first.overall.tokens) for name, one in others]
        behind = [f"{name} {whole_percent(ratio - 1)} more" for name, ratio in ratios if ratio >= 1 + MATTERS]
        if not others:
            continue
        if not behind:
            sentences.append(f"At {size:,} tokens all need about as many tokens for the text.")
        else:
            sentences.append(f"At {size:,} tokens {best} needs the fewest for the text; {listed(behind, 6)}.")
    return sentences


def _size(sweep: schema.Sweep) -> list[str]:
    """What a larger vocabulary saves, step by step."""
    sentences = []
    for name, cells in series_of(sweep).items():
        steps = []
        for small, large in pairwise(cells):
            if small.overall.tokens and large.overall.tokens:
                saved = 1 - large.overall.tokens / small.overall.tokens
                steps.append(f"{whole_percent(saved)} from {small.vocab_size:,} to {large.vocab_size:,}")
        if steps:
            sentences.append(f"{name}: a larger vocabulary saves tokens of the text, {listed(steps, 6)}.")
    return sentences


def _balance(sweep: schema.Sweep) -> list[str]:
    sentences = []
    for size, cells in _by_size(sweep).items():
        known = [(one.fertility_gini, name, one) for name, one in cells if one.fertility_gini is not None]
        if len(known) < 2:
            continue
        (low, best, first), (high, worst, last) = min(known, key=lambda k: k[:2]), max(known, key=lambda k: k[:2])
        if high - low > 0.01:
            ratio = first.overall.tokens / last.overall.tokens
            price = (
                f"{whole_percent(abs(ratio - 1))} {'more' if ratio > 1 else 'fewer'}"
                if abs(ratio - 1) >= MATTERS
                else "about as many"
            )
            sentences.append(
                f"At {size:,} tokens {best} treats the groups most alike (Gini coefficient of fertility {low:.3f}, {worst} "
                f"{high:.3f}), with {price} tokens for all the text."
            )
    return sentences


def figures(sweep: schema.Sweep) -> dict[str, Any]:
    """As figures.figures; "lines": a value by vocabulary size, or another size, of each series."""
    series = series_of(sweep)
    found: dict[str, Any] = {}
    curves = [
        {
            "title": metric.title,
            "x": "size of the vocabulary",
            "y": metric.title + _better(sweep, metric.key),
            "percent": metric.kind == "share",
            "series": [
                {"name": name, "x": [c.vocab_size for c in cells], "y": [getattr(c.overall, metric.key) for c in cells]}
                for name, cells in series.items()
            ],
        }
        for metric in _METRICS
        if any(getattr(c.overall, metric.key) is not None for c in sweep.cells)
    ]
    if curves:
        found["curves"] = {"kind": "lines", "choices": curves}
    costs = [
        {
            "title": shape,
            "x": "parameters of embedding and output",
            "y": "Bytes/token" + _better(sweep, "bytes_per_token"),
            "percent": False,
            "series": [
                {
                    "name": name,
                    "x": [c.parameters.get(shape) for c in cells],
                    "y": [c.overall.bytes_per_token for c in cells],
                }
                for name, cells in series.items()
            ],
        }
        for shape in sweep.shapes
    ]
    if costs:
        found["parameters"] = {"kind": "lines", "choices": costs}
    groups = sorted(sweep.corpus.groups)
    if len(groups) > 1 and any(m.fertility is not None for c in sweep.cells for m in c.groups.values()):
        found["by-group"] = {
            "kind": "lines",
            "choices": [
                {
                    "title": tables.group_title(group),
                    "x": "size of the vocabulary",
                    "y": "Fertility" + _better(sweep, "fertility"),
                    "percent": False,
                    "series": [
                        {
                            "name": name,
                            "x": [c.vocab_size for c in cells],
                            "y": [c.groups[group].fertility if group in c.groups else None for c in cells],
                        }
                        for name, cells in series.items()
                    ],
                }
                for group in groups
            ],
        }
    return found


def _better(sweep: schema.Sweep, key: str) -> str:
    definition = sweep.definitions.get(key)
    return f" ({definition.better} is better)" if definition and definition.better != "neither" else ""


def _column(sweep: schema.Sweep, metric: Metric) -> Column:
    definition = sweep.definitions.get(metric.key)
    better = definition.better if definition and definition.better != "neither" else ""
    return Column(metric.title, metric.kind, metric.key, better)


def cells(sweep: schema.Sweep) -> Table:
    known = [m for m in _METRICS if any(getattr(c.overall, m.key) is not None for c in sweep.cells)]
    columns = [
        Column("Algorithm"),
        Column("Weights"),
        Column("Vocabulary", "count"),
        *(_column(sweep, metric) for metric in known),
        _column(sweep, Metric("utilization", "Utilization", "share")),
        _column(sweep, Metric("fertility_gini", "Gini of fertility", "small")),
        *(Column(f"Parameters, {shape}", "count", "parameters", "lower") for shape in sweep.shapes),
        Column("Tokenizer"),
    ]
    rows = [
        [
            cell(c.algorithm),
            cell(c.weights),
            cell(c.vocab_size, "count"),
            *(cell(getattr(c.overall, metric.key), metric.kind) for metric in known),
            cell(c.utilization.fraction, "share"),
            cell(c.fertility_gini, "small"),
            *(cell(c.parameters.get(shape), "count") for shape in sweep.shapes),
            cell(c.tokenizer),
        ]
        for c in sweep.cells
    ]
    return Table(
        "cells", f"{counted(len(rows), 'tokenizer')} of the grid", columns, rows, filter="algorithm or weights"
    )


def groups(sweep: schema.Sweep) -> list[Table]:
    """For each metric groups down and cells across."""
    made = []
    for metric in _METRICS[:3]:
        rows = []
        for group in sorted(sweep.corpus.groups):
            found = [getattr(c.groups[group], metric.key) if group in c.groups else None for c in sweep.cells]
            if any(v is not None for v in found):
                rows.append([cell(tables.group_title(group)), *(Cell(values.shown(v, metric.kind), v) for v in found)])
        if rows:
            columns = [Column("Group"), *(Column(c.name, metric.kind) for c in sweep.cells)]
            made.append(
                Table(
                    f"compare-{metric.key}",
                    f"{metric.title} by group{_better(sweep, metric.key)}",
                    columns,
                    rows,
                    metric=metric,
                    filter="group",
                )
            )
    return made
