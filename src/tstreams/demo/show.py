"""The demo itself: a server, producers, a driver that is killed, and the audit in the end."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import tstreams

from ..errors import Unavailable
from .audit import Findings
from .driving import Driver
from .history import History
from .payments import closing_mark
from .processes import Child
from .producing import Account
from .story import (
    ALERTS,
    BATCH,
    LEAD_TICKS,
    PARTITIONS,
    PAYMENT,
    PAYMENTS,
    PRODUCERS,
    TOTALS,
    Day,
)

TURN_S = 0.05
SAMPLE_S = 0.5
READY_S_MAX = 60.0
TROUBLE_S_MAX = 600.0
"""If nothing moves for so long, something is wrong."""
SURVEYED = 10**9
"""A limit that is none: with it, a survey counts."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the demo was told."""

    payments: int = 500_000
    kills: int = 2
    rate: int = 10_000
    """Payments in a second, at most."""
    seed: int = 1


@dataclass(slots=True)
class Outcome:
    """What it came to."""

    options: Options
    account: Account
    findings: Findings
    history: History
    folder: Path

    @property
    def is_good(self) -> bool:
        """Whether the audit has found nothing wrong."""
        return self.findings.are_good

    def as_json(self) -> dict[str, object]:
        """For programs."""
        history, findings = self.history, asdict(self.findings)
        begun = [it for it in history.batches if it.rows]
        return {
            "ok": self.is_good,
            "missing": findings.pop("missing"),
            "duplicated": findings.pop("duplicated"),
            "strange": findings.pop("strange"),
            "phantoms": findings.pop("phantoms"),
            "kills": len(history.kills),
            "killed_in_batches": [it.killed_in for it in history.kills],
            "micro_batches": len({it.number for it in history.batches}),
            "late_rows": sum(it.late_rows for it in history.batches),
            "acknowledged": self.account.payments,
            "transactions": self.account.transactions,
            "cancelled": self.account.cancelled,
            "expired": self.account.expired,
            "uncounted": self.account.uncounted,
            **findings,
            "rows_per_s_best": round(max((it.rate for it in begun), default=0.0)),
            "seconds": round(history.ended, 1),
        }


class Screen(Protocol):
    """Who watches."""

    def say(self, text: str) -> None:
        """Something has happened."""

    def show(self, show: Show) -> None:
        """This is how things are now."""


@dataclass(slots=True)
class Show:
    """Runs it. `close` ends whatever runs, at any time."""

    options: Options
    screen: Screen
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tstreams-demo-")))
    history: History = field(default_factory=History)
    accounts: list[Account] = field(default_factory=lambda: [Account()] * PRODUCERS)
    processed: int = 0
    phase: str = "starting"
    driver: Driver | None = None
    _children: list[Child] = field(default_factory=list)
    _producers: list[Child] = field(default_factory=list)
    _url: str = ""
    _sampled_at: float = 0.0
    _told: int = 0

    @property
    def day(self) -> Day:
        """How the payments are spread."""
        return Day(self.options.payments)

    @property
    def produced(self) -> int:
        """Payments that are acknowledged."""
        return sum(it.payments for it in self.accounts)

    @property
    def account(self) -> Account:
        """What all producers have done."""
        sums = {name: sum(getattr(it, name) for it in self.accounts) for name in _COUNTS}
        return Account(min(it.ticks for it in self.accounts), **sums)

    # From the beginning to the end.

    def run(self) -> Outcome:
        """The whole demo. `Unavailable` if one of its processes fails."""
        server = self._start_server()
        with tstreams.connect(self._url) as ts:
            ts.create_stream(PAYMENTS, PARTITIONS, description="what cards paid", schema=PAYMENT)
            ts.create_stream(ALERTS, 2, description="what looks like fraud")
            ts.create_stream(TOTALS, description="what was paid in each country")
            self._start_producers()
            rng = random.Random(self.options.seed)
            driver = self.driver = Driver(self._url, self.folder, self.day, self.history, rng)
            driver.start()
            self.screen.say("the Spark driver starts")
            self._play(ts, driver)
        findings = self._audit()
        if (status := server.terminate()) != 0:
            raise Unavailable(f"the server ended with {status}:\n{server.log_tail()}")
        self.history.ended = self.history.now()
        return Outcome(self.options, self.account, findings, self.history, self.folder)

    def _start_server(self) -> Child:
        ready = self.folder / "ready"
        command = ["tstreams", "serve", "--data", str(self.folder / "data")]
        command += ["--listen", "tcp://127.0.0.1:0", "--ready-file", str(ready)]
        command += ["--http", "off"]
        server = self._child("server", command)
        self._wait(ready.exists, server, READY_S_MAX)
        self._url = ready.read_text().split()[0]
        self.screen.say(f"a server on {self._url}, with its data in {self.folder}")
        return server

    def _start_producers(self) -> None:
        for number in range(PRODUCERS):
            command = ["tstreams.demo.producing", self._url, str(number)]
            command.append(str(self.options.payments))
            self._producers.append(self._child(f"producer-{number}", command, piped=True))
        self.screen.say(
            f"{PRODUCERS} producers write {self.options.payments:,} payments, {BATCH} in a "
            f"transaction, into {PARTITIONS} partitions"
        )

    def _play(self, ts: tstreams.Client, driver: Driver) -> None:
        """Let the day pass, with its kills, until all windows are closed."""
        self.phase = "running"
        began = moved_at = time.monotonic()
        seen = (0, 0)
        while not driver.has_ended:
            self._hear_producers(time.monotonic() - began)
            for text in driver.turn(self.produced, self.processed, self.options.kills):
                self.screen.say(text)
            self._sample(ts, driver)
            if self._is_drained() and self.history.closed is None:
                self._close_day(ts)
            if (now_at := (self.produced, len(self.history.batches))) != seen:
                seen, moved_at = now_at, time.monotonic()
            if time.monotonic() - moved_at > TROUBLE_S_MAX:
                raise Unavailable(f"nothing has moved for {TROUBLE_S_MAX} s: {driver.log_tail()}")
            self.screen.show(self)
            time.sleep(TURN_S)
        for text in driver.turn(self.produced, self.processed, 0):
            self.screen.say(text)
        self._sample(ts, driver, at_once=True)
        self.screen.say("all windows are closed, and the driver has ended by itself")

    def _hear_producers(self, elapsed_s: float) -> None:
        """Where they are, and how far they may go: with the clock, and not far ahead of the slowest."""
        for number, producer in enumerate(self._producers):
            for line in producer.lines():
                self.accounts[number] = Account(**line)
            producer.check()
        by_clock = int(elapsed_s * self.options.rate / (BATCH * PARTITIONS)) + 1
        allowed = min(by_clock, min(it.ticks for it in self.accounts) + LEAD_TICKS)
        if allowed > self._told:
            self._told = allowed
            for producer in self._producers:
                producer.tell(str(allowed))

    def _sample(self, ts: tstreams.Client, driver: Driver, at_once: bool = False) -> None:
        """How much waits for the pipeline, as the server counts it."""
        if not at_once and time.monotonic() - self._sampled_at < SAMPLE_S:
            return
        self._sampled_at = time.monotonic()
        produced = self.produced
        left = ts.survey(PAYMENTS, driver.position, transactions=SURVEYED)
        waiting = sum(it.items for it in left.values())
        if not any(it.more for it in left.values()):
            self.processed = max(self.processed, min(produced, produced - waiting))
        self.history.add_sample(produced, self.processed)

    def _is_drained(self) -> bool:
        return self.processed == self.produced == self.options.payments

    def _close_day(self, ts: tstreams.Client) -> None:
        """Everything was read: let the clock go on, so that the last windows close too."""
        with ts.producer(PAYMENTS, "closing") as producer:
            for partition in range(PARTITIONS):
                producer.open(partition).send_many(closing_mark(self.day, partition))
            producer.checkpoint()
        self.history.closed = self.history.now()
        self.screen.say("all payments are read; the day is over")

    def _audit(self) -> Findings:
        self.phase = "auditing"
        self.screen.say("the audit computes everything anew from the payments")
        path = self.folder / "findings"
        command = ["tstreams.demo.audit", self._url, str(self.folder)]
        command += [str(self.produced), str(path)]
        child = self._child("audit", command)
        self._wait(lambda: child.status == 0, child, TROUBLE_S_MAX)
        self.phase = "done"
        self.screen.show(self)
        return Findings(**json.loads(path.read_text()))

    # Processes.

    def _child(self, name: str, command: list[str], piped: bool = False) -> Child:
        child = Child(name, self.folder, command, piped)
        self._children.append(child)
        return child

    def _wait(self, is_done: Callable[[], bool], child: Child, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not is_done():
            child.check()
            if time.monotonic() > until:
                raise Unavailable(f"{child.name} takes too long: {child.log_tail()}")
            self.screen.show(self)
            time.sleep(TURN_S)

    def close(self, keep: bool = False) -> None:
        """End whatever runs, and remove what was written, unless it is to be kept."""
        if self.driver is not None:
            self.driver.close()
        for child in reversed(self._children):
            child.kill()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


_COUNTS = ("payments", "transactions", "cancelled", "expired", "uncounted")
