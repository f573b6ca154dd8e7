"""The loop that stores a stream in a database: who is fenced, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import psycopg2
import pytest
import sqlalchemy

import tstreams
from benchmarks.postgres import PostgresServer
from tstreams import BadRequest, Client, Fenced, InvalidState, NotFound
from tstreams.sinks import OffsetStore, into_database

from ..tstreams.conftest import eventually
from .databases import EmptyDatabase, content, fill, postgres_database, sqlite_database, store

# Fencing.


def test_the_newer_of_two_wins(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    """The older one is in the middle of its work; nothing of it is stored."""
    fill(ts, clicks, 20)
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: Any, transactions: Any) -> None:
        inside.set()
        assert go_on.wait(60)
        store(connection, transactions)

    def connect() -> Any:
        """The older one has read in this transaction, so that it holds nothing that others wait for."""
        connection = database.connect()
        if database.kind == "sqlite":
            connection.execute("pragma journal_mode = wal")
        return connection

    with ThreadPoolExecutor(1) as pool:
        if database.kind == "sqlite":
            # SQLite has one writer at a time: the older one is between two batches.
            older = pool.submit(
                into_database, ts, clicks, "loader", connect, store, stop=go_on, batch=3
            )
            eventually(lambda: database.stored() == content(ts, clicks))
        else:
            older = pool.submit(into_database, ts, clicks, "loader", connect, slow, max_wait=0)
            assert inside.wait(60)
        into_database(ts, clicks, "loader", connect, store, max_wait=0)
        fill(ts, clicks, 5)
        if database.kind != "sqlite":
            go_on.set()
        with pytest.raises(Fenced, match="'loader'"):
            older.result(60)
        into_database(ts, clicks, "loader", connect, store, max_wait=0)
    assert database.stored() == content(ts, clicks)


def test_many_of_one_name_at_once(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    """They fence each other all the time, and still each item is stored once."""
    fill(ts, clicks, 400)
    expected = content(ts, clicks)
    all_inside = threading.Barrier(4)

    def work(number: int) -> int:
        fenced = 0
        is_first = database.kind == "postgres"  # SQLite lets one in at a time

        def fn(connection: Any, transactions: Any) -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                all_inside.wait(60)
            store(connection, transactions)

        while len(database.stored()) < len(expected):
            try:
                into_database(ts, clicks, "loader", database.connect, fn, batch=5, max_wait=0)
            except Fenced:
                fenced += 1
        return fenced

    with ThreadPoolExecutor(4) as pool:
        fenced = sum(pool.map(work, range(4)))
    assert database.stored() == expected
    assert fenced >= 3 or database.kind == "sqlite"


# Misuse.


def test_a_connection_that_commits_by_itself_is_refused_before_anything_is_written(
    ts: Client, clicks: str, postgres: PostgresServer
) -> None:
    database = postgres_database(postgres.dsn, "commits_by_itself")
    fill(ts, clicks, 5)
    with pytest.raises(InvalidState, match="autocommit"):
        into_database(
            ts,
            clicks,
            "loader",
            lambda: psycopg.connect(database.where, autocommit=True),
            store,
            max_wait=0,
        )
    engine = sqlalchemy.create_engine(database.url, isolation_level="AUTOCOMMIT")
    with pytest.raises(InvalidState, match="autocommit"):
        into_database(ts, clicks, "loader", engine, store, max_wait=0)
    engine.dispose()
    assert database.stored() == []


def test_sqlite_without_transactions_of_its_own_gets_them(
    ts: Client, clicks: str, tmp_path: Any
) -> None:
    database = sqlite_database(tmp_path / "test.db")
    fill(ts, clicks, 5)
    calls = []

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(database.where, isolation_level=None)

    def fn(connection: Any, transactions: Any) -> None:
        store(connection, transactions)
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")

    with pytest.raises(ValueError, match="once"):
        into_database(ts, clicks, "loader", connect, fn, max_wait=0)
    assert database.stored() == []
    into_database(ts, clicks, "loader", connect, fn, max_wait=0)
    assert database.stored() == content(ts, clicks)


@pytest.mark.parametrize("kind", ["driver", "other driver", "sqlalchemy"])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_an_fn_that_ends_the_transaction_is_told(
    ts: Client, clicks: str, database: EmptyDatabase, kind: str, ending: str
) -> None:
    """One that has nothing to store is fine."""
    fill(ts, clicks, 5)
    engine = database.engine()

    def other() -> Any:
        if database.kind == "sqlite":
            return sqlite3.connect(database.where, isolation_level=None)
        return psycopg2.connect(database.where)

    connect: Any = {"driver": database.connect, "other driver": other, "sqlalchemy": engine}[kind]

    def fn(connection: Any, transactions: Any) -> None:
        store(connection, transactions)
        getattr(connection, ending)()

    with pytest.raises(InvalidState, match="leave commit"):
        into_database(ts, clicks, "loader", connect, fn, max_wait=0)
    done = into_database(ts, clicks, "loader", connect, lambda *_: None, max_wait=0)
    assert done.transactions == 5
    engine.dispose()


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"batch": True},
        {"batch": "5"},
        {"max_wait": -1},
        {"max_wait": "1"},
        {"retry_for": -1},
        {"table": "a b"},
        {"fn": 5},
        {"connect": "dbname=shop"},
        {"partitions": [9]},
        {"paramstyle": "x"},
        {"start": "oldest"},
    ],
)
def test_options_that_make_no_sense_fence_nobody(
    ts: Client, clicks: str, tmp_path: Any, wrong: dict[str, Any]
) -> None:
    with ts.consumer(clicks, "loader") as consumer:
        options = {"connect": lambda: sqlite3.connect(tmp_path / "x.db"), "fn": store} | wrong
        with pytest.raises(BadRequest):
            into_database(ts, clicks, "loader", **options)
        consumer.checkpoint()


def test_the_client_for_asyncio_is_told(tmp_path: Any) -> None:
    async def main() -> None:
        async with tstreams.aio.embedded(tmp_path / "other") as client:
            wrong: Any = client
            with pytest.raises(BadRequest, match="blocking client"):
                into_database(wrong, "clicks", "loader", lambda: None, store)

    asyncio.run(main())


def test_a_stream_that_there_is_not(ts: Client, tmp_path: Any) -> None:
    with pytest.raises(NotFound):
        into_database(ts, "nothing", "loader", lambda: sqlite3.connect(tmp_path / "x.db"), store)


def test_the_offsets_can_be_looked_at(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    fill(ts, clicks, 8)
    into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    last = {row[0]: row[1] for row in content(ts, clicks)}
    with contextlib.closing(database.connect()) as connection:
        assert OffsetStore().load(connection, "loader", ts.stream(clicks)) == last
