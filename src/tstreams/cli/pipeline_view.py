"""How pipelines get on, for the eye or for a program: a table on a terminal, lines, or JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from .output import remark, say, say_json

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from ..spark.progress import Progress
    from ..spark.running import Run

LINE_INTERVAL_S = 5.0
"""How often a pipeline's progress becomes a line: a log is no screen."""
REDRAWS_PER_S = 4
STYLES = {"running": "green", "failed": "red", "waiting": "yellow", "stopping": "yellow"}


class View(Protocol):
    """A watcher of a runner that also tells of the end."""

    def changed(self, run: Run) -> None:
        """A pipeline has come to another state, or has failed once more."""

    def progressed(self, run: Run, progress: Progress) -> None:
        """A micro-batch is done."""

    def looked(self, runs: Sequence[Run]) -> None:
        """All have been looked at."""

    def ended(self, runs: Sequence[Run], seconds: float) -> None:
        """That was all."""


@contextmanager
def view_for(as_json: bool) -> Iterator[View]:
    """The view that suits standard output."""
    if as_json:
        yield JsonView()
        return
    if sys.stdout.isatty():
        try:
            from rich.live import Live
        except ImportError:
            pass  # lines will do
        else:
            with Live(auto_refresh=False) as live:
                yield TableView(live)
            return
    yield LineView()


class JsonView:
    """One object for each micro-batch and each change, and a last one about all."""

    def changed(self, run: Run) -> None:
        """A pipeline has come to another state, or has failed once more."""
        told: dict[str, Any] = {"pipeline": run.name, "event": "state", "state": str(run.state)}
        if run.error and str(run.state) in ("waiting", "failed"):
            told["error"] = run.error
        if run.retry_in_s:
            told["retry_in_s"] = run.pause_s
        if run.cut:
            told["cut"] = True
        self._say(told)

    def progressed(self, run: Run, progress: Progress) -> None:
        """A micro-batch is done."""
        self._say({"pipeline": run.name, "event": "progress", **progress.as_dict()})

    def looked(self, runs: Sequence[Run]) -> None:
        """All have been looked at."""

    def ended(self, runs: Sequence[Run], seconds: float) -> None:
        """That was all."""
        pipelines = [
            {
                "pipeline": run.name,
                "state": str(run.state),
                "batches": run.batches,
                "rows": run.rows,
                "restarts": run.restarts,
                "cut": run.cut,
                "error": run.error or None,
            }
            for run in runs
        ]
        self._say({"event": "summary", "seconds": round(seconds, 1), "pipelines": pipelines})

    def _say(self, told: dict[str, Any]) -> None:
        say_json(told)
        sys.stdout.flush()


class LineView:
    """Lines for a log."""

    def __init__(self) -> None:
        self._said_at: dict[str, float] = {}

    def changed(self, run: Run) -> None:
        """A pipeline has come to another state, or has failed once more."""
        self._say(f"{run.name}: {state_of(run)}")

    def progressed(self, run: Run, progress: Progress) -> None:
        """A micro-batch is done."""
        now = time.monotonic()
        if now - self._said_at.get(run.name, 0.0) >= LINE_INTERVAL_S:
            self._said_at[run.name] = now
            self._say(
                f"{run.name}: batch {progress.batch}, {progress.rows:,} rows in "
                f"{progress.seconds:.2f} s, {progress.rows_per_s:,.0f} rows/s, {lag_of(progress)}"
            )

    def looked(self, runs: Sequence[Run]) -> None:
        """All have been looked at."""

    def ended(self, runs: Sequence[Run], seconds: float) -> None:
        """That was all."""
        say_end(runs)

    def _say(self, text: str) -> None:
        say(text)
        sys.stdout.flush()


class TableView:
    """A table on a terminal that changes while they run."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._drawn_at = 0.0

    def changed(self, run: Run) -> None:
        """A pipeline has come to another state, or has failed once more."""
        self._drawn_at = 0.0

    def progressed(self, run: Run, progress: Progress) -> None:
        """A micro-batch is done."""

    def looked(self, runs: Sequence[Run]) -> None:
        """All have been looked at."""
        now = time.monotonic()
        if now - self._drawn_at >= 1 / REDRAWS_PER_S:
            self._drawn_at = now
            self._live.update(_table(runs), refresh=True)

    def ended(self, runs: Sequence[Run], seconds: float) -> None:
        """That was all."""
        self._live.update(_table(runs), refresh=True)
        self._live.stop()
        say_end(runs)


def _table(runs: Sequence[Run]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("PIPELINE", "STATE"):
        table.add_column(name, overflow="fold")
    for name in ("BATCH", "ROWS", "ROWS/S", "LAG"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        last = run.last
        numbers = ("-", "-", "-", "-")
        if last is not None:
            numbers = (
                str(last.batch),
                f"{run.rows:,}",
                f"{last.rows_per_s:,.0f}",
                "-" if last.lag_s is None else f"{last.lag_s:.1f} s",
            )
        state = Text(state_of(run), STYLES.get(str(run.state), ""))
        table.add_row(Text(run.name), state, *numbers)
    return table


def state_of(run: Run) -> str:
    """The state in words."""
    state = str(run.state)
    if state == "waiting" and run.error:
        return f"failed: {run.error}; starts again in {run.retry_in_s:.0f} s"
    if state == "failed":
        return f"failed for good: {run.error}"
    if state == "stopped" and run.cut:
        return "stopped in the middle of a micro-batch"
    return "idle" if state == "running" and run.idle else state


def lag_of(progress: Progress) -> str:
    """The lag in words."""
    return "lag unknown" if progress.lag_s is None else f"lag {progress.lag_s:.1f} s"


def say_end(runs: Sequence[Run]) -> None:
    """What became of each; warnings go to standard error."""
    for run in runs:
        restarts = f", {run.restarts} restarts" if run.restarts else ""
        say(f"{run.name}: {run.state}, {run.batches:,} batches, {run.rows:,} rows{restarts}")
        if run.cut:
            remark(
                f"tstreams: pipeline {run.name!r} was stopped in the middle of a micro-batch: readers of its "
                "sink may be held up until it is started again, or until its stagingTtl ends"
            )
