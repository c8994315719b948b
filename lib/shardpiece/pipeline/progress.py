"""Progress of a stage: a live bar on a terminal, one line every so often elsewhere."""

import sys
import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

LINE_SECONDS = 15.0
_POLL_SECONDS = 0.25


def log(message: str) -> None:
    """One line for people, on stderr."""
    print(f"shardpiece: {message}", file=sys.stderr, flush=True)


def count_text(value: float) -> str:
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (limit if unit != 'k' else 1e3):.1f}{unit}"
    return f"{value:.0f}"


def time_text(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class StageProgress:
    """Shows a stage while it runs: ``read`` returns (fraction done, {"documents": n, "bytes": n, ...}) at any time; a text
    among these is what is being done just now.

    ``stopped()``: whether the end came early. Use as a context manager; ``seconds`` and ``counts`` hold the final figures afterwards.
    """

    def __init__(
        self,
        stage: str,
        read: Callable[[], tuple[float, dict[str, float | str]]],
        interval: float = LINE_SECONDS,
        stopped: Callable[[], bool] = bool,
    ):
        self.stage = stage
        self.seconds = 0.0
        self.counts: dict[str, float | str] = {}
        self._read = read
        self._interval = interval
        self._stopped = stopped
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"progress of {stage}", daemon=True)
        self._began = 0.0

    def __enter__(self) -> "StageProgress":
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind, value, traceback) -> None:
        self._stop.set()
        self._thread.join()
        self.seconds = time.monotonic() - self._began
        _, self.counts = self._read()
        if kind is None:
            log(self._line(1.0, self.counts, done=True))

    def _line(self, fraction: float, counts: dict[str, float | str], done: bool = False) -> str:
        seconds = max(1e-3, time.monotonic() - self._began)
        texts = [value for value in counts.values() if isinstance(value, str)]
        counts = {name: value for name, value in counts.items() if not isinstance(value, str)}
        parts = [
            f"{value / 1e6:,.1f} MB" if name == "bytes" else f"{count_text(value)} {name}"
            for name, value in counts.items()
        ]
        if counts.get("bytes"):
            parts.append(f"{counts['bytes'] / 1e6 / seconds:,.1f} MB/s")
        elif counts:
            name, value = next(iter(counts.items()))
            parts.append(f"{count_text(value / seconds)} {name}/s")
        if done:
            parts.append(f"in {time_text(seconds)}")
        elif fraction > 0.005:
            parts.append(f"{time_text(seconds / fraction - seconds)} left")
        if not done:
            parts += texts
        head = f"{self.stage}: " + (("stopped, " if self._stopped() else "done, ") if done else f"{fraction:.0%}, ")
        return head + ", ".join(parts)

    def _run(self) -> None:
        console = Console(stderr=True)
        if console.is_terminal and not console.is_dumb_terminal:
            with Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[line]}"),
                console=console, transient=True,
            ) as bar:  # fmt: skip
                task = bar.add_task(self.stage, total=1.0, line="")
                while not self._stop.wait(_POLL_SECONDS):
                    fraction, counts = self._read()
                    line = self._line(fraction, counts).split(": ", 1)[1]
                    bar.update(task, completed=fraction, line=line)
        else:
            while not self._stop.wait(self._interval):
                log(self._line(*self._read()))
