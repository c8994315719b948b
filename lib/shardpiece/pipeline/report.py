"""What a stage did, and the summary table of a job."""

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from shardpiece.pipeline.progress import time_text


@dataclass(frozen=True)
class StageReport:
    """``figures``: what was counted, by name, in the order to show; ``seconds``: wall time, 0 when skipped."""

    stage: str
    seconds: float
    skipped: bool
    figures: dict[str, float] = field(default_factory=dict)


def summary_table(reports: list[StageReport]) -> Table:
    """One row per figure, with the rate of each stage that handled bytes."""
    table = Table(title="shardpiece", title_justify="left")
    table.add_column("stage")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for report in reports:
        stage = report.stage
        for name, value in report.figures.items():
            text = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
            table.add_row(stage, name, text)
            stage = ""
        if report.skipped:
            table.add_row(stage, "time", "skipped: done and unchanged")
        else:
            table.add_row(stage, "time", time_text(report.seconds) + f" ({report.seconds:.1f} s)")
            if report.figures.get("bytes") and report.seconds:
                table.add_row("", "MB/s", f"{report.figures['bytes'] / 1e6 / report.seconds:,.1f}")
        table.add_section()
    return table


def print_summary(reports: list[StageReport], places: dict[str, str]) -> None:
    """The table and where everything lies, on stdout."""
    console = Console(highlight=False)
    console.print(summary_table(reports))
    for what, path in places.items():
        console.print(f"{what:>12}: {path}", soft_wrap=True)
