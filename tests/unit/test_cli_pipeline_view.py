"""What `tstreams pipeline run` shows: a table, lines, or JSON."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console
from rich.live import Live

from tstreams.cli.pipeline_view import JsonView, LineView, TableView, state_of
from tstreams.spark import Pipeline
from tstreams.spark.progress import Progress
from tstreams.spark.running import Run, State

DONE = Progress(7, 1200, 4800.0, 0.25, 1.5, "2026-01-01T00:00:00.000Z")


def a_run(name: str = "shout", **state: object) -> Run:
    run = Run(Pipeline(name, lambda rows: rows), 3, 1.0)
    for key, value in state.items():
        setattr(run, key, value)
    return run


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (a_run(), "waiting"),
        (a_run(state=State.RUNNING), "running"),
        (a_run(state=State.RUNNING, idle=True), "idle"),
        (a_run(state=State.FAILED, error="no way"), "failed for good: no way"),
        (a_run(error="no way"), "failed: no way; starts again in 0 s"),
        (a_run(state=State.STOPPED, cut=True), "stopped in the middle of a micro-batch"),
    ],
)
def test_a_state_in_words(run: Run, words: str) -> None:
    assert state_of(run) == words


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view, run = LineView(), a_run(state=State.RUNNING, batches=1, rows=1200, restarts=2, cut=True)
    view.changed(run)
    view.progressed(run, DONE)
    view.progressed(run, DONE)  # too soon after the other: a log is no screen
    run.state = State.STOPPED
    view.ended([run], 3.0)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "shout: running",
        "shout: batch 7, 1,200 rows in 0.25 s, 4,800 rows/s, lag 1.5 s",
        "shout: stopped, 1 batches, 1,200 rows, 2 restarts",
    ]
    assert "'shout' was stopped in the middle of a micro-batch" in err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    view, run = JsonView(), a_run(state=State.FAILED, error="no way")
    view.changed(run)
    view.progressed(run, DONE)
    view.ended([run], 3.04)
    failed, progress, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert failed == {
        "pipeline": "shout",
        "event": "state",
        "state": "failed",
        "error": "no way",
    }
    assert progress == {"pipeline": "shout", "event": "progress", **DONE.as_dict()}
    assert (summary["event"], summary["seconds"]) == ("summary", 3.0)
    assert summary["pipelines"][0]["error"] == "no way"


def test_a_table() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=90, color_system=None)
    runs = [a_run(state=State.RUNNING, last=DONE, rows=9000), a_run("[red]odd[/red]")]
    with Live(console=console, auto_refresh=False) as live:
        TableView(live).looked(runs)
    drawn = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", screen.getvalue())
    lines = [line.split() for line in drawn.splitlines()]
    assert ["PIPELINE", "STATE", "BATCH", "ROWS", "ROWS/S", "LAG"] in lines
    assert ["shout", "running", "7", "9,000", "4,800", "1.5", "s"] in lines
    assert ["[red]odd[/red]", "waiting", "-", "-", "-", "-"] in lines
