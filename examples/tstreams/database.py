"""From a stream into a database, exactly once: the place in the stream is kept in the database.

`into_database` calls a function inside a transaction of the database, and saves the place in the same
transaction. So the rows and the place are there together, or not at all, wherever the program dies. The
consumer's own checkpoints are not needed for it.
"""

import contextlib
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tstreams
from tstreams import Client
from tstreams.sinks import into_database


class Crash(Exception):
    """The program dies here, in the middle of its work."""


def load(ts: Client, path: Path, crash_after: int | None = None) -> None:
    """Read payments from where the database says, and add them up in it."""
    batches = 0

    def add_up(database: sqlite3.Connection, transactions: list[Any]) -> None:
        nonlocal batches
        for txn in transactions:
            for item in txn.items:
                account, cents = item.decode().split()
                database.execute(
                    "insert into total values (?, ?) on conflict do update set cents = cents + ?",
                    (account, int(cents), int(cents)),
                )
        if batches == crash_after:
            raise Crash
        batches += 1

    into_database(
        ts, "payments", "loader", lambda: sqlite3.connect(path), add_up, batch=1, max_wait=0.2
    )


@dataclass
class Result:
    """What the database says in the end."""

    crashes: int
    totals: dict[str, int]


def run() -> Result:
    """Load in three attempts, two of which crash between the rows and the place."""
    crashes = 0
    with tempfile.TemporaryDirectory() as name, tstreams.embedded(Path(name) / "data") as ts:
        ts.create_stream("payments")
        with ts.producer("payments", name="till") as producer:
            for number in range(10):
                producer.instant([b"alice %d" % number, b"bob 1"])
        path = Path(name) / "totals.db"
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("create table total (account text primary key, cents int)")
        for crash_after in (3, 4, None):
            try:
                load(ts, path, crash_after)
            except Crash:
                crashes += 1
        with contextlib.closing(sqlite3.connect(path)) as database:
            totals = dict(database.execute("select account, cents from total order by account"))
    return Result(crashes, totals)


def main() -> None:
    """Tell what happened."""
    result = run()
    print(f"after {result.crashes} crashes: {result.totals}")


if __name__ == "__main__":
    main()
