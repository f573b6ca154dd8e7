"""The database goes away in the middle: killed, cut off at a commit, or busy."""

from __future__ import annotations

import contextlib
import logging
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import psycopg2
import pytest
import sqlalchemy

from benchmarks.postgres import PostgresServer, find_postgres, postgres_server
from tstreams import Client
from tstreams.sinks import into_database

from ..tstreams.conftest import eventually
from .databases import EmptyDatabase, content, fill, postgres_database, sqlite_database, store
from .relay import CommitCutter, Cut


@pytest.fixture
def fragile() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the test's own, to be harmed."""
    if find_postgres() is None:
        pytest.skip("there is no PostgreSQL on this machine")
    with (
        tempfile.TemporaryDirectory() as name,
        postgres_server(Path(name), {"fsync": "off"}) as server,
    ):
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["psycopg", "psycopg2", "sqlalchemy"])
def test_the_database_server_is_killed_again_and_again(
    ts: Client, clicks: str, fragile: PostgresServer, kind: str
) -> None:
    database = postgres_database(fragile.dsn, "killed")
    engine = database.engine()
    connect: Any = {
        "psycopg": lambda: psycopg.connect(database.where),
        "psycopg2": lambda: psycopg2.connect(database.where),
        "sqlalchemy": engine,
    }[kind]
    stop, full = threading.Event(), threading.Event()

    def write() -> None:
        while not full.is_set():
            fill(ts, clicks, 4)
            time.sleep(0.02)

    rng = random.Random(4)
    with ThreadPoolExecutor(2) as pool:
        writer = pool.submit(write)
        future = pool.submit(
            into_database, ts, clicks, "loader", connect, store, batch=3, stop=stop
        )
        try:
            for _ in range(5):
                time.sleep(rng.uniform(0.05, 0.6))
                fragile.crash()
                time.sleep(rng.uniform(0.0, 0.3))
                fragile.start()
        finally:
            full.set()
            writer.result(60)
        eventually(lambda: future.done() or len(database.stored()) == len(content(ts, clicks)), 60)
        stop.set()
        done = future.result(60)
    assert done.retries >= 3
    assert database.stored() == content(ts, clicks)
    assert done.transactions == len({row[:2] for row in database.stored()})
    engine.dispose()


@pytest.mark.parametrize("cut", ["before", "after", "late"])
def test_a_commit_whose_outcome_is_unknown(
    ts: Client, clicks: str, postgres: PostgresServer, cut: Cut
) -> None:
    """The offsets say what became of it; a commit that comes late is waited for, or refused."""
    database = postgres_database(postgres.dsn, f"cut_{cut}")
    fill(ts, clicks, 30)
    relay = CommitCutter(postgres.port)
    where = database.where.replace(f"port={postgres.port}", f"port={relay.port}")
    calls = []

    def fn(connection: Any, transactions: Any) -> None:
        calls.append(1)
        if len(calls) % 3 == 2:
            relay.cuts.append(cut)
        store(connection, transactions)

    with contextlib.closing(relay):
        done = into_database(
            ts, clicks, "loader", lambda: psycopg.connect(where), fn, batch=5, max_wait=0
        )
    assert relay.done >= 2
    assert done.retries >= relay.done
    assert database.stored() == content(ts, clicks)
    assert done.transactions == 30
    if cut == "before":
        assert len(calls) == done.commits + relay.done
    else:
        assert len(calls) == done.commits


def test_a_server_that_is_down_at_first(
    ts: Client, clicks: str, fragile: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    database = postgres_database(fragile.dsn, "down")
    fragile.stop()
    fill(ts, clicks, 5)
    with caplog.at_level(logging.WARNING, "tstreams.sinks"), ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            into_database, ts, clicks, "loader", database.connect, store, max_wait=0
        )
        eventually(lambda: caplog.records)
        fragile.start()
        assert future.result(60).retries >= 1
    assert "'loader' stores stream 'clicks'" in caplog.records[0].getMessage()
    assert database.stored() == content(ts, clicks)


def test_it_gives_up_in_the_end(ts: Client, clicks: str) -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        into_database(
            ts,
            clicks,
            "loader",
            lambda: psycopg.connect("host=127.0.0.1 port=1 user=nobody"),
            store,
            retry_for=0.3,
        )
    assert "has failed for 0.3 s: given up" in caught.value.__notes__[-1]


def test_stop_while_the_database_is_down(ts: Client, clicks: str) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            into_database,
            ts,
            clicks,
            "loader",
            lambda: psycopg.connect("host=127.0.0.1 port=1 user=nobody"),
            store,
            stop=stop,
        )
        stop.set()
        assert future.result(30).transactions == 0


def test_sqlite_is_busy(ts: Client, clicks: str, tmp_path: Path) -> None:
    """Another program writes; the loop tries again until it may."""
    database = sqlite_database(tmp_path / "test.db")
    fill(ts, clicks, 10)
    busy = sqlite3.connect(database.where, check_same_thread=False)
    busy.execute("begin immediate")
    with contextlib.closing(busy), ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            into_database,
            ts,
            clicks,
            "loader",
            lambda: sqlite3.connect(database.where, timeout=0.01),
            store,
            max_wait=0,
        )
        time.sleep(0.3)
        busy.rollback()
        assert future.result(60).transactions == 10
    assert database.stored() == content(ts, clicks)


def test_deadlocks_are_tried_again(ts: Client, clicks: str, postgres: PostgresServer) -> None:
    """Two loops that touch the same rows in opposite order."""
    database: EmptyDatabase = postgres_database(postgres.dsn, "deadlocks")
    database.run("create table pair (name text primary key, n int)")
    database.run("insert into pair values ('a', 0), ('b', 0)")
    fill(ts, clicks, 60)
    engine = sqlalchemy.create_engine(
        database.url, connect_args={"options": "-c deadlock_timeout=10ms"}
    )

    def loop(names: str) -> int:
        def fn(connection: Any, transactions: Any) -> None:
            for name in names:
                connection.exec_driver_sql(
                    f"update pair set n = n + {len(transactions)} where name = '{name}'"
                )
                time.sleep(0.01)

        return into_database(ts, clicks, names, engine, fn, batch=5, max_wait=0).retries

    with ThreadPoolExecutor(2) as pool:
        retries = sum(pool.map(loop, ["ab", "ba"]))
    engine.dispose()
    assert database.run("select n from pair") == [(120,), (120,)]
    assert retries > 0
