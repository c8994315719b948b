"""report.html: everything of metrics.json on one page that needs nothing else."""

import json
from typing import Any

from shardpiece import __version__
from shardpiece.evaluation import pages, schema
from shardpiece.evaluation.report import figures, samples, summary, tables, values

_SCRIPTS = ("theme.js", "tokens.js", "plotly-basic.min.js", "report.js")
_STYLES = ("base.css", "tokens.css", "report.css")


def render(report: schema.Report) -> str:
    """The page: HTML with its styles, scripts and data inside, which asks for nothing over the network and is the same for
    the same report. Text of the corpus is shown and never run: templates escape it, scripts put it in as text, and the
    page's policy allows no script but its own."""
    scripts = [pages.inline_script(name) for name in _SCRIPTS]
    data = {
        "tokenizers": [t.name for t in report.tokenizers],
        "figures": figures.figures(report),
        "samples": samples.samples(report),
    }
    return (
        pages.environment("report")
        .get_template("report.html")
        .render(
            version=__version__,
            policy=pages.content_security_policy(scripts),
            style=pages.inline_style(*_STYLES),
            scripts=scripts,
            data=pages.script_json(data),
            report=report,
            findings=summary.summary(report),
            matters=values.whole_percent(summary.MATTERS),
            shown=values.shown,
            figures=data["figures"],
            tables=_tables(report),
            probes=samples.probes(report),
            notes=_notes(report),
            settings=json.dumps(report.settings, indent=2, ensure_ascii=False, sort_keys=True),
            shown_groups=figures.GROUPS,
            counted=values.counted,
            group_title=tables.group_title,
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


def _notes(report: schema.Report) -> list[str]:
    return [*report.notes, *(f"{t.name}: {note}" for t in report.tokenizers for note in t.notes)]
