"""The report: one HTML file that needs nothing else."""

from __future__ import annotations

import os
import platform
from html import escape
from importlib.metadata import version
from pathlib import Path

from .. import __version__
from .history import History
from .plots import Plot
from .show import Outcome
from .story import PATTERNS, WATERMARK_MINUTES, WINDOW_MINUTES

PRODUCED, PROCESSED, LAG, KILL = "#0d9488", "#2563eb", "#b45309", "#c81e1e"
SMOOTHING_S = 2.0

STYLE = """
body { margin: 0; background: #f5f7fa; color: #1f2933; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0 .75rem; }
.verdict { border-left: 6px solid #0d9488; background: #fff; padding: .9rem 1.1rem; margin: 1.25rem 0;
  border-radius: 4px; font-size: 1.1rem; }
.verdict.bad { border-color: #c81e1e; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); gap: .75rem; }
.tile { background: #fff; border: 1px solid #e4e7eb; border-radius: 6px; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.5rem; line-height: 1.3; }
.tile span { color: #52606d; font-size: .88rem; }
figure { margin: 0; background: #fff; border: 1px solid #e4e7eb; border-radius: 6px; padding: .75rem; }
figure svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; background: #fff; border: 1px solid #e4e7eb; }
th, td { text-align: left; padding: .4rem .75rem; border-bottom: 1px solid #e4e7eb; }
th { color: #52606d; font-weight: 600; font-size: .88rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
footer { color: #52606d; font-size: .88rem; margin-top: 2rem; }
"""


def write(outcome: Outcome, path: Path) -> None:
    """Write it. Folders on the way are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(outcome), encoding="utf-8")


def page(outcome: Outcome) -> str:
    """The whole page."""
    history = outcome.history
    sections = [
        _head(outcome),
        _tiles(outcome),
        _figure(
            "Throughput",
            "Payments a second: what the producers wrote, and what each micro-batch read. In grey, a driver "
            "starts.",
            throughput(history),
        ),
        _figure(
            "Lag",
            "Payments that wait for the pipeline. It grows while no driver runs, and is worked off afterwards.",
            lag(history),
        ),
        _figure(
            "Micro-batches",
            "How long each took. The first one of each driver pays for starting everything up.",
            latency(history),
        ),
        _lives(history),
        _audit(outcome),
        _foot(),
    ]
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>tstreams demo</title><style>{STYLE}</style></head>\n<body><main>\n{body}\n"
        "</main></body></html>\n"
    )


# The plots.


def throughput(history: History) -> str:
    """Payments a second, over time."""
    produced = _rates(history)
    done = [it for it in history.batches if it.rows]
    top = max([rate for _, rate in produced] + [it.rate for it in done], default=1.0)
    plot = _plot(history, "payments a second", top)
    plot.bars(
        (
            (
                it.begun,
                it.begun + it.duration_s,
                it.rate,
                f"micro-batch {it.number}: {it.rows:,} payments, {it.rate:,.0f} a second",
            )
            for it in done
        ),
        "processed, by micro-batch",
        PROCESSED,
    )
    plot.line(produced, "produced", PRODUCED)
    return _marked(plot, history)


def lag(history: History) -> str:
    """Payments that wait, over time."""
    points = [(it.at, float(it.lag)) for it in history.samples]
    plot = _plot(history, "payments that wait", max((lag for _, lag in points), default=1.0))
    plot.line(points, "lag", LAG, fill=True)
    return _marked(plot, history)


def latency(history: History) -> str:
    """How long micro-batches took."""
    plot = _plot(
        history,
        "seconds a micro-batch took",
        max((it.duration_s for it in history.batches), default=1.0),
    )
    plot.bars(
        (
            (
                it.begun,
                it.begun + it.duration_s,
                it.duration_s,
                f"micro-batch {it.number} of driver {it.life}: {it.duration_s:.2f} s",
            )
            for it in history.batches
        ),
        "micro-batch",
        PROCESSED,
    )
    return _marked(plot, history)


def _plot(history: History, title: str, top: float) -> Plot:
    plot = Plot(title, _shown_s(history), top)
    for life in history.lives:
        first = [it.begun for it in history.batches if it.life == life.number]
        until = first[0] if first else life.ended or _shown_s(history)
        plot.span(life.started, until, f"driver {life.number} starts", f"{life.number} starts", "…")
    return plot


def _shown_s(history: History) -> float:
    """Until the last driver has ended: the audit is not of interest here."""
    return history.lives[-1].ended or history.ended


def _marked(plot: Plot, history: History) -> str:
    for number, life in enumerate(history.kills, 1):
        assert life.ended is not None
        plot.mark(life.ended, f"kill {number}", KILL)
    if history.closed is not None:
        plot.mark(history.closed, "day over", "#52606d")
    return plot.svg()


def _rates(history: History) -> list[tuple[float, float]]:
    """How fast payments were produced, smoothed a little."""
    points = []
    samples = history.samples
    for index, sample in enumerate(samples):
        before = next(it for it in samples if it.at >= sample.at - SMOOTHING_S)
        over = sample.at - before.at
        if index and over:
            points.append((sample.at, (sample.produced - before.produced) / over))
    return points


# The words.


def _head(outcome: Outcome) -> str:
    findings = outcome.findings
    kills = len(outcome.history.kills)
    if outcome.is_good:
        times = {0: "never", 1: "once", 2: "twice"}.get(kills, f"{kills} times")
        verdict = (
            f"The driver was killed {times} in the middle of a micro-batch. The audit found "
            "<b>nothing missing and nothing duplicated</b>: every payment counts exactly once."
        )
    else:
        verdict = (
            f"<b>The audit failed:</b> {findings.missing:,} missing, {findings.duplicated:,} duplicated, "
            f"{findings.strange:,} strange, {findings.phantoms:,} phantoms."
        )
    return (
        "<h1>tstreams demo: a day of card payments</h1>\n"
        "<p>Producers write payments in transactions. A Spark query finds suspicious cards and sums up "
        f"countries in windows of {WINDOW_MINUTES} minutes, with a watermark of {WATERMARK_MINUTES}. Its driver "
        "is killed with SIGKILL, and goes on from its checkpoint.</p>\n"
        f'<div class="verdict{"" if outcome.is_good else " bad"}">{verdict}</div>'
    )


def _tiles(outcome: Outcome) -> str:
    account, findings, history = outcome.account, outcome.findings, outcome.history
    best = max((it.rate for it in history.batches), default=0.0)
    tiles = [
        (f"{account.payments:,}", "payments"),
        (f"{account.transactions:,}", "transactions"),
        (f"{account.uncounted:,}", "payments cancelled or expired, not counted"),
        (f"{findings.alerts:,}", "alerts"),
        (f"{len(history.kills)}", "kills in mid-batch"),
        (f"{findings.missing:,}", "missing"),
        (f"{findings.duplicated:,}", "duplicated"),
        (f"{best:,.0f}", "payments a second, best micro-batch"),
    ]
    found = "".join(f'<div class="tile"><b>{it}</b><span>{text}</span></div>' for it, text in tiles)
    return f'<div class="tiles">{found}</div>'


def _figure(title: str, text: str, svg: str) -> str:
    return f"<h2>{title}</h2>\n<p>{text}</p>\n<figure>{svg}</figure>"


def _table(headings: list[str], rows: list[list[str]], numbers: int) -> str:
    """The last `numbers` columns are set to the right."""
    first = len(headings) - numbers

    def line(tag: str, cells: list[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if at >= first else ''}>{escape(cell)}</{tag}>"
            for at, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><tr>{line('th', headings)}</tr>{body}</table>"


def _lives(history: History) -> str:
    rows = []
    for life in history.lives:
        end = "ended by itself, when all windows were closed"
        if life.killed_in is not None:
            end = f"SIGKILL in the middle of micro-batch {life.killed_in}"
        elif life.number < len(history.lives):
            end = "SIGKILL between two micro-batches"
        lived = (life.ended or history.ended) - life.started
        rows.append(
            [f"{life.number}", end, f"{life.batches}", f"{life.started:.1f}", f"{lived:.1f}"]
        )
    headings = ["Driver", "How it ended", "Micro-batches done", "Started at, s", "Lived, s"]
    return f"<h2>The drivers</h2>\n{_table(headings, rows, 3)}"


def _audit(outcome: Outcome) -> str:
    findings, account = outcome.findings, outcome.account
    rows = [
        ["Payments that were acknowledged", f"{account.payments:,}"],
        ["Payments in the stream", f"{findings.payments:,}"],
        ["Payments of cancelled or expired transactions among them", f"{findings.phantoms:,}"],
        *(
            [f"Alerts: {name}, {PATTERNS.get(name, '')} in one window", f"{count:,}"]
            for name, count in findings.patterns.items()
        ),
        ["Totals: windows of a country", f"{findings.totals:,}"],
        ["Missing", f"{findings.missing:,}"],
        ["Duplicated", f"{findings.duplicated:,}"],
        ["Strange: no input accounts for it", f"{findings.strange:,}"],
    ]
    examples = "".join(f"<li>{escape(it)}</li>" for it in findings.examples)
    return (
        "<h2>The audit</h2>\n<p>A batch job of its own computed all alerts and totals anew from the payments, "
        "with plain sums, and compared them item by item with what is in the streams.</p>\n"
        + _table(["What", "How many"], rows, 1)
        + (f"<ul>{examples}</ul>" if examples else "")
    )


def _foot() -> str:
    return (
        f"<footer>tstreams {escape(__version__)}, PySpark {escape(version('pyspark'))}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {escape(platform.system())}. "
        "Made by <code>tstreams demo</code>.</footer>"
    )
