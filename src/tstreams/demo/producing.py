"""The process of a producer: `python -m tstreams.demo.producing URL NUMBER PAYMENTS`.

Reads from standard input how far it may go, in ticks, and writes to standard output how far it is, as lines
of JSON. Ends when the day is over, or when nobody tells it to go on any more.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import tstreams
from tstreams.demo.payments import batch, phantoms
from tstreams.demo.story import (
    BATCH,
    CANCEL_EVERY,
    CARELESS,
    PARTITIONS,
    PAYMENTS,
    PRODUCERS,
    Day,
)

VISIBLE_S_MAX = 60.0


@dataclass(slots=True)
class Account:
    """What a producer has done so far. Payments are counted when they are acknowledged."""

    ticks: int = 0
    payments: int = 0
    transactions: int = 0
    cancelled: int = 0
    expired: int = 0
    """Transactions of terminals that lost power."""
    uncounted: int = 0
    """Payments in the two above."""


class Producing:
    """One producer's day."""

    def __init__(self, ts: tstreams.Client, number: int, day: Day) -> None:
        self.account = Account()
        self._ts = ts
        self._day = day
        self._number = number
        self._partitions = [it for it in range(PARTITIONS) if it % PRODUCERS == number]
        self._producer = ts.producer(PAYMENTS, f"producer-{number}", partitions=self._partitions)
        self._power_cuts = {
            (index + 1) * day.ticks // (CARELESS + 1): self._partitions[index // PRODUCERS % 2]
            for index in range(CARELESS)
            if index % PRODUCERS == number
        }

    def tick(self, tick: int) -> None:
        """A minute of the day: a transaction in each partition, all of them visible at once."""
        left_open = self._cut_power(tick) if tick in self._power_cuts else None
        for partition in self._partitions:
            rows = batch(self._day, tick, partition)
            if rows.num_rows:
                self._producer.open(partition).send_many(rows)
                self.account.transactions += 1
                self.account.payments += rows.num_rows
        if tick % CANCEL_EVERY == self._number:
            self._cancel_one(tick)
        self._producer.checkpoint()
        if left_open is not None:
            self._wait_until_expired(*left_open)
        self.account.ticks = tick + 1

    def _cancel_one(self, tick: int) -> None:
        partition = self._partitions[tick // CANCEL_EVERY % len(self._partitions)]
        transaction = self._producer.open(partition)
        transaction.send_many(phantoms(tick, partition))
        transaction.cancel()
        self.account.cancelled += 1
        self.account.uncounted += BATCH

    def _cut_power(self, tick: int) -> tuple[int, int]:
        """Let a terminal die. The partition, and the id of the transaction that it left open."""
        partition = self._power_cuts[tick]
        url = self._ts.config.url
        command = [sys.executable, "-m", "tstreams.demo.careless", url, str(partition), str(tick)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(f"a terminal ended with {done.returncode}: {done.stderr[-2000:]}")
        self.account.expired += 1
        self.account.uncounted += BATCH
        return partition, int(done.stdout)

    def _wait_until_expired(self, partition: int, transaction_id: int) -> None:
        """What is behind it becomes visible. Till then the day's clock stands still, for all partitions."""
        until = time.monotonic() + VISIBLE_S_MAX
        while self._ts.survey(PAYMENTS, {partition: transaction_id})[partition].last_id is None:
            if time.monotonic() > until:
                raise RuntimeError(f"transaction {transaction_id} holds up readers for too long")
            time.sleep(0.05)


def main() -> None:
    """The day of one producer."""
    url, number, payments = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    day = Day(payments)
    with tstreams.connect(url) as ts:
        producing = Producing(ts, number, day)
        allowed = 0
        for tick in range(day.ticks):
            while tick >= allowed:
                line = sys.stdin.readline()
                if not line:
                    return
                allowed = int(line)
            producing.tick(tick)
            print(json.dumps(asdict(producing.account)), flush=True)


if __name__ == "__main__":
    main()
