"""What is to be seen while the demo runs: a live view on a terminal, else a line for each event."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .story import MINUTE, MORNING

if TYPE_CHECKING:
    from .show import Outcome, Show

REFRESH_S = 0.15
STATUS_S = 10.0
"""How often there is a line on how things are, where there is no terminal."""
EVENTS_SHOWN = 7
BAR_COLUMNS = 36
SPARKS = " ▁▂▃▄▅▆▇█"
SPARK_COLUMNS = 48
PRODUCED, PROCESSED, KILL, DIM, GOOD = "cyan", "blue", "bold red", "dim", "bold green"


class LiveScreen:
    """A view that is drawn over and over. On no terminal: lines, one after the other."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENTS_SHOWN)
        self._drawn_at = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._is_live = console.is_terminal

    def __enter__(self) -> LiveScreen:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Something has happened."""
        at = time.monotonic() - self._began
        self._events.append((at, text))
        if not self._is_live:
            self._console.print(f"{at:6.1f} s  {text}", highlight=False, soft_wrap=True)

    def show(self, show: Show) -> None:
        """This is how things are now."""
        now = time.monotonic()
        if now - self._drawn_at < (REFRESH_S if self._is_live else STATUS_S):
            return
        self._drawn_at = now
        if self._is_live:
            self._live.update(self._view(show), refresh=True)
        elif show.phase == "running":
            self.say(_status(show))

    def _view(self, show: Show) -> Panel:
        history, wanted = show.history, show.options.payments
        produced_rate, processed_rate = history.rates()
        marks = _kill_marks(show)
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style=DIM)
        rows.add_column()
        rows.add_row("produced", _line(show.produced, wanted, produced_rate, PRODUCED))
        rows.add_row("processed", _line(show.processed, wanted, processed_rate, PROCESSED, marks))
        rows.add_row("lag", _lag(show))
        rows.add_row("driver", _driver(show))
        rows.add_row("kills", _kills(show))
        account = show.account
        rows.add_row(
            "not counted",
            f"{account.uncounted:,} payments in {account.cancelled} transactions that were cancelled "
            f"and {account.expired} that expired",
        )
        clock = MORNING + account.ticks * MINUTE
        rows.add_row("clock", f"{history.now():.0f} s; in the story it is {clock:%H:%M}")
        events = Text("\n")
        for at, text in self._events:
            style = KILL if text.startswith("kill ") else ""
            events.append(f"\n{at:6.1f} s  ", DIM).append(text, style)
        title = f"tstreams demo: a day of card payments, {show.phase}"
        return Panel(Group(rows, events), title=title, border_style="cyan", width=self._width)

    @property
    def _width(self) -> int:
        return min(self._console.width, 100)


def _line(done: int, wanted: int, rate: float, style: str, marks: tuple[float, ...] = ()) -> Text:
    """A bar, a number, and a rate."""
    filled = BAR_COLUMNS * done // wanted
    cells = [("█", style)] * filled + [("░", DIM)] * (BAR_COLUMNS - filled)
    for share in marks:
        cells[min(BAR_COLUMNS - 1, int(BAR_COLUMNS * share))] = ("✗", KILL)
    line = Text()
    for text, style_ in cells:
        line.append(text, style_)
    return line.append(f" {done:>9,}").append(f"  {rate:>7,.0f}/s", DIM)


def _kill_marks(show: Show) -> tuple[float, ...]:
    """How much had been processed at each kill."""
    samples = show.history.samples
    before = [
        [it.processed for it in samples if it.at <= (life.ended or 0.0)]
        for life in show.history.kills
    ]
    return tuple(it[-1] / show.options.payments for it in before if it)


def _lag(show: Show) -> Text:
    lags = [it.lag for it in show.history.samples][-SPARK_COLUMNS:]
    top = max(lags, default=0) or 1
    sparks = "".join(SPARKS[round((len(SPARKS) - 1) * it / top)] for it in lags)
    last = lags[-1] if lags else 0
    return Text(f"{last:>9,} payments  ").append(sparks, "yellow")


def _driver(show: Show) -> str:
    history = show.history
    if not history.lives:
        return "not yet started"
    life = history.lives[-1]
    if life.ready is None:
        return f"number {life.number} is starting"
    last = history.batches[-1] if history.batches else None
    if last is None or last.life != life.number:
        return f"number {life.number} is at its first micro-batch"
    return (
        f"number {life.number}, micro-batch {last.number}: {last.rows:,} rows in {last.duration_s:.1f} s; "
        f"{last.state_rows:,} rows of state"
    )


def _kills(show: Show) -> Text:
    text = Text(f"{len(show.history.kills)} of {show.options.kills}")
    for life in show.history.kills:
        text.append("  ✗ ", KILL).append(f"in micro-batch {life.killed_in}")
    return text


def _status(show: Show) -> str:
    produced, processed = show.history.rates()
    return (
        f"produced {show.produced:,} ({produced:,.0f}/s), processed {show.processed:,} "
        f"({processed:,.0f}/s), lag {show.produced - show.processed:,}"
    )


def summary(outcome: Outcome) -> Table:
    """The final table."""
    account, findings, history = outcome.account, outcome.findings, outcome.history
    table = Table(title="tstreams demo", show_header=False, title_style="bold", min_width=60)
    table.add_column(style=DIM)
    table.add_column(overflow="fold")
    table.add_row("payments", f"{account.payments:,} in {account.transactions:,} transactions")
    table.add_row(
        "not counted",
        f"{account.uncounted:,} payments: {account.cancelled} transactions cancelled, "
        f"{account.expired} expired",
    )
    killed = ", ".join(str(it.killed_in) for it in history.kills)
    table.add_row(
        "driver",
        f"{len(history.lives)} lives, {len(history.kills)} ended by SIGKILL in mid-batch"
        + (f" (micro-batches {killed})" if killed else ""),
    )
    found = ", ".join(f"{count:,} {name}" for name, count in findings.patterns.items())
    table.add_row("alerts", f"{findings.alerts:,}: {found}")
    table.add_row("totals", f"{findings.totals:,} windows of countries")
    table.add_row("took", f"{history.ended:.0f} s")
    table.add_section()
    for name in ("missing", "duplicated", "strange", "phantoms"):
        count = getattr(findings, name)
        table.add_row(name, Text(f"{count:,}", KILL if count else GOOD))
    verdict = "every payment counts exactly once" if outcome.is_good else "THE AUDIT FAILED"
    table.add_row("audit", Text(verdict, GOOD if outcome.is_good else KILL))
    return table
