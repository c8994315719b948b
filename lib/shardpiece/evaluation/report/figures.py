"""What the plots of a report show: categories and one series per tokenizer, in plain JSON. How they look is report.js's."""

from typing import Any

from shardpiece.evaluation import schema
from shardpiece.evaluation.report import values
from shardpiece.evaluation.report.tables import group_title

_CATEGORIES = 16
GROUPS = 60


def figures(report: schema.Report) -> dict[str, Any]:
    """By id. "dots": groups down, a value of each tokenizer across; "curve": (rank, count) points on two logarithmic axes;
    "bars": numbers of tokens by category. Each has "choices", of which one is shown at a time."""
    found: dict[str, Any] = {}
    if len(report.corpus.groups) > 1:
        choices = [choice for metric in values.GROUP_METRICS if (choice := _by_group(report, metric))]
        if choices:
            found["by-group"] = {"kind": "dots", "choices": choices}
    if any(t.frequency_curve for t in report.tokenizers):
        found["frequency"] = {
            "kind": "curve",
            "choices": [
                {
                    "title": "Frequency",
                    "x": "rank of the token",
                    "y": "times in the text",
                    "series": [
                        {"name": t.name, "x": [r for r, _ in t.frequency_curve], "y": [c for _, c in t.frequency_curve]}
                        for t in report.tokenizers
                    ],
                }
            ],
        }
    bars = [
        bar
        for key, title in (
            ("by_script", "script"),
            ("by_category", "category"),
            ("by_length", "length in bytes"),
            ("by_group", "group it serves most"),
        )
        if (bar := _allocation(report, key, title))
    ]
    if bars:
        found["vocabulary"] = {"kind": "bars", "choices": bars}
    if premium := _premiums(report):
        found["premiums"] = {"kind": "dots", "choices": [premium]}
    return found


def _by_group(report: schema.Report, metric: values.Metric) -> dict[str, Any] | None:
    groups = _largest(report)
    found = [[getattr(t.groups[g], metric.key) if g in t.groups else None for g in groups] for t in report.tokenizers]
    if all(v is None for row in found for v in row):
        return None
    doubtful = _doubtful(report, groups) if metric.key in values.OF_TOKENS else [[False] * len(groups)] * len(found)
    order = _order(groups, found, doubtful)
    definition = report.definitions.get(metric.key)
    better = f" ({definition.better} is better)" if definition and definition.better != "neither" else ""
    return {
        "title": metric.title,
        "x": metric.title + better,
        "percent": metric.kind == "share",
        "log": False,
        "categories": [group_title(groups[i]) for i in order],
        "series": _series(report, found, doubtful, order),
    }


def _largest(report: schema.Report) -> list[str]:
    """Of many groups those with most text."""
    sizes = report.corpus.groups
    return sorted(sizes, key=lambda group: (-sizes[group].bytes, group))[:GROUPS]


def _doubtful(report: schema.Report, groups: list[str]) -> list[list[bool]]:
    return [[values.loses_text(t.groups.get(group)) for group in groups] for t in report.tokenizers]


def _order(groups: list[str], found: list[list[float | None]], doubtful: list[list[bool]]) -> list[int]:
    """By the mean of the values that are not doubtful."""

    def middle(i: int) -> float:
        known = [row[i] for row, doubt in zip(found, doubtful, strict=True) if row[i] is not None and not doubt[i]]
        return sum(known) / len(known) if known else float("-inf")

    return sorted(range(len(groups)), key=lambda i: (middle(i), groups[i]))


def _series(report: schema.Report, found: list, doubtful: list, order: list[int]) -> list[dict[str, Any]]:
    return [
        {"name": t.name, "values": [row[i] for i in order], "doubtful": [doubt[i] for i in order]}
        for t, row, doubt in zip(report.tokenizers, found, doubtful, strict=True)
    ]


def _allocation(report: schema.Report, key: str, title: str) -> dict[str, Any] | None:
    counts = [getattr(t.vocabulary, key) for t in report.tokenizers]
    names = list({name: None for of in counts for name in of})
    if not names:
        return None
    total = {name: sum(of.get(name, 0) for of in counts) for name in names}
    if key == "by_length":
        shown = sorted(names)[: 2 * _CATEGORIES]
    else:
        shown = sorted(names, key=lambda name: (-total[name], str(name)))[:_CATEGORIES]
    rest = [name for name in names if name not in set(shown)]
    labels = [group_title(name) if key == "by_group" else str(name) for name in shown]
    return {
        "title": title,
        "x": "tokens of the vocabulary",
        "categories": labels + (["all others"] if rest else []),
        "series": [
            {
                "name": t.name,
                "values": [of.get(name, 0) for name in shown] + ([sum(of.get(n, 0) for n in rest)] if rest else []),
            }
            for t, of in zip(report.tokenizers, counts, strict=True)
        ],
    }


def _premiums(report: schema.Report) -> dict[str, Any] | None:
    parallel = report.parallel
    if parallel is None or parallel.pivot is None:
        return None
    groups = [group for group in _largest(report) if group in parallel.groups]
    found = [[t.premiums.get(g) for g in groups] for t in report.tokenizers]
    if all(v is None for row in found for v in row):
        return None
    doubtful = _doubtful(report, groups)
    order = _order(groups, found, doubtful)
    reference = [parallel.groups[groups[i]].byte_premium for i in order]
    return {
        "title": "Premium",
        "x": f"tokens for the same text, against {group_title(parallel.pivot)} (lower is better)",
        "percent": False,
        "log": True,
        "categories": [group_title(groups[i]) for i in order],
        "series": _series(report, found, doubtful, order),
        "reference": {"name": "bytes alone", "values": reference},
    }
