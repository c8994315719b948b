"""report.html and sweep.html: everything of metrics.json, or of sweep.json, on one page that needs nothing else."""

import json
from typing import Any

from shardpiece import __version__
from shardpiece.evaluation import pages, schema
from shardpiece.evaluation.report import figures, samples, summary, sweep, tables, values

_SCRIPTS = ("theme.js", "tokens.js", "plotly-basic.min.js", "report.js")
_STYLES = ("base.css", "tokens.css", "report.css")


def render(report: schema.Report) -> str:
    """The page of a report: HTML with its styles, scripts and data inside, which asks for nothing over the network and is
    the same for the same report. Text of the corpus is shown and never run: templates escape it, scripts put it in as text,
    and the page's policy allows no script but its own."""
    plots = figures.figures(report)
    return _page(
        "report.html",
        "Tokenizers evaluated",
        report,
        {"tokenizers": [t.name for t in report.tokenizers], "figures": plots, "samples": samples.samples(report)},
        findings=summary.summary(report),
        shown_groups=figures.GROUPS,
        figures=plots,
        tables=_tables(report),
        probes=samples.probes(report),
        notes=[*report.notes, *(f"{t.name}: {note}" for t in report.tokenizers for note in t.notes)],
    )


def render_sweep(report: schema.Sweep) -> str:
    """The same for a sweep."""
    plots = sweep.figures(report)
    return _page(
        "sweep.html",
        "Tokenizers to choose from",
        report,
        {"tokenizers": [], "figures": plots, "samples": []},
        findings=sweep.summary(report),
        figures=plots,
        tables={"cells": sweep.cells(report), "comparisons": sweep.groups(report)},
        notes=report.notes,
    )


def _page(template: str, title: str, report: schema.Report | schema.Sweep, data: dict[str, Any], **context: Any) -> str:
    scripts = [pages.inline_script(name) for name in _SCRIPTS]
    return (
        pages.environment("report")
        .get_template(template)
        .render(
            title=title,
            version=__version__,
            policy=pages.content_security_policy(scripts),
            style=pages.inline_style(*_STYLES),
            scripts=scripts,
            data=pages.script_json(data),
            report=report,
            matters=values.whole_percent(summary.MATTERS),
            shown=values.shown,
            counted=values.counted,
            settings=json.dumps(report.settings, indent=2, ensure_ascii=False, sort_keys=True),
            **context,
        )
    )


def _tables(report: schema.Report) -> dict[str, Any]:
    allocations = (
        ("by_category", "Category"),
        ("by_script", "Script"),
        ("by_length", "Length in bytes"),
        ("by_group", "Group it serves most"),
    )
    return {
        "overview": tables.overview(report),
        "comparisons": tables.comparisons(report),
        "groups": tables.groups(report),
        "sizes": tables.sizes(report),
        "premiums": tables.premiums(report),
        "allocation": [t for key, title in allocations if (t := tables.allocation(report, key, title)).rows],
        "glitch_counts": tables.glitch_counts(report),
        "glitches": tables.glitches(report),
        "numbers": tables.numbers(report),
        "white_space": tables.white_space(report),
        "costs": tables.costs(report),
    }
