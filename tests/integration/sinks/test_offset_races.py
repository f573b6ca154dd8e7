"""Offsets in a database: transactions that are needed or in the way, and several at once."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm

from benchmarks.postgres import PostgresServer
from tstreams import BadRequest, Fenced, InvalidState
from tstreams.sinks import Claim, OffsetStore

from ..tstreams.conftest import eventually
from .databases import EmptyDatabase, opened, postgres_database, run, sqlite_database
from .test_offset_store import CLICKS

# Transactions.


def test_a_connection_that_commits_by_itself_is_refused(database: EmptyDatabase) -> None:
    """Else data and offsets would not be written together. A transaction that was begun by hand is fine."""
    offsets = OffsetStore()
    with opened(database.connect) as connection:
        claim = offsets.claim(connection, "loader", CLICKS)
        if database.kind == "sqlite":
            connection.isolation_level = None
        else:
            connection.autocommit = True
        with pytest.raises(InvalidState, match="autocommit"):
            offsets.save(connection, claim, {0: 1})
        assert offsets.load(connection, "loader", CLICKS) == {}
        run(connection, "begin")
        offsets.save(connection, claim, {0: 1})
        run(connection, "rollback")
        assert offsets.load(connection, "loader", CLICKS) == {}
        run(connection, "begin")
        offsets.save(connection, claim, {0: 2})
        run(connection, "commit")
        assert offsets.load(connection, "loader", CLICKS) == {0: 2}
        assert offsets.claim(connection, "loader", CLICKS).positions == {0: 2}


def test_an_engine_that_commits_by_itself_is_refused(database: EmptyDatabase) -> None:
    engine = sqlalchemy.create_engine(database.url, isolation_level="AUTOCOMMIT")
    with contextlib.closing(engine.connect()) as connection:
        claim = OffsetStore().claim(engine, "loader", CLICKS)
        with pytest.raises(InvalidState, match="autocommit"):
            OffsetStore().save(connection, claim, {0: 1})
    engine.dispose()


def test_a_claim_does_not_commit_the_work_of_others(database: EmptyDatabase) -> None:
    with opened(database.connect) as connection:
        run(connection, "insert into stored values (1, 2, 3, 'x')")
        with pytest.raises(InvalidState, match="under way"):
            OffsetStore().claim(connection, "loader", CLICKS)
        connection.rollback()
        claim = OffsetStore().claim(connection, "loader", CLICKS)
        run(connection, "insert into stored values (1, 2, 3, 'x')")
        with pytest.raises(InvalidState, match="under way"):
            OffsetStore().renew(connection, claim)
    assert database.stored() == []


def test_sqlalchemy_sessions_and_engines(database: EmptyDatabase) -> None:
    engine = database.engine()
    offsets = OffsetStore()
    claim = offsets.claim(engine, "loader", CLICKS)
    with sqlalchemy.orm.Session(engine) as session:
        session.execute(sqlalchemy.text("insert into stored values (0, 1, 0, 'x')"))
        offsets.save(session, claim, {0: 1})
        session.rollback()
        session.execute(sqlalchemy.text("insert into stored values (0, 2, 0, 'x')"))
        offsets.save(session, claim, {0: 2})
        session.commit()
    with engine.begin() as connection:
        run(connection, "insert into stored values (0, 3, 0, 'x')")
        offsets.save(connection, claim, {0: 3})
    assert offsets.load(engine, "loader", CLICKS) == {0: 3}
    with pytest.raises(BadRequest, match="engine"):
        offsets.save(engine, claim, {0: 4})
    with engine.connect() as connection:
        run(connection, "select 1")
        with pytest.raises(InvalidState, match="under way"):
            offsets.claim(connection, "loader", CLICKS)
    newer = offsets.renew(engine, claim)
    assert (newer.epoch, newer.positions) == (2, {0: 3})
    engine.dispose()
    assert [row[1] for row in database.stored()] == [2, 3]


@pytest.mark.parametrize("given", [None, 5, "text", object()])
def test_things_that_are_no_connections(given: Any) -> None:
    claim = Claim("loader", "clicks", 7, 1, "x")
    with pytest.raises(BadRequest, match="neither a connection nor a cursor"):
        OffsetStore().save(given, claim, {0: 1})


def test_a_connection_for_asyncio_is_refused() -> None:
    class AsyncConnection:
        async def __aenter__(self) -> None: ...

    with pytest.raises(BadRequest, match="asyncio"):
        OffsetStore().save(AsyncConnection(), Claim("loader", "clicks", 7, 1, "x"), {0: 1})


def test_a_driver_that_does_not_tell_its_style(tmp_path: Any) -> None:
    """As behind a pool that wraps its connections."""

    class Wrapped:
        def __init__(self, inner: sqlite3.Connection) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    with contextlib.closing(sqlite3.connect(tmp_path / "test.db")) as inner:
        with pytest.raises(BadRequest, match="paramstyle="):
            OffsetStore().claim(Wrapped(inner), "loader", CLICKS)
        offsets = OffsetStore(paramstyle="qmark")
        claim = offsets.claim(Wrapped(inner), "loader", CLICKS)
        offsets.save(Wrapped(inner), claim, {0: 1})
        inner.commit()
    with pytest.raises(BadRequest, match="qmark, numeric"):
        OffsetStore(paramstyle="question")


# Races.


def is_waiting(database: EmptyDatabase) -> bool:
    """Whether somebody waits for a lock in PostgreSQL."""
    found = database.run(
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' "
        "and datname = current_database()"
    )
    return bool(found)


def test_a_claim_waits_for_a_save_that_is_under_way(database: EmptyDatabase) -> None:
    """And then knows what was saved."""
    offsets = OffsetStore()
    with opened(database.connect) as older, ThreadPoolExecutor(1) as pool:
        claim = offsets.claim(older, "loader", CLICKS)
        run(older, "insert into stored values (0, 5, 0, 'x')")
        offsets.save(older, claim, {0: 5})
        started = threading.Event()

        def take() -> Claim:
            with opened(database.connect) as newer:
                started.set()
                return offsets.claim(newer, "loader", CLICKS)

        future = pool.submit(take)
        started.wait()
        if database.kind == "postgres":
            eventually(lambda: is_waiting(database))
        assert not future.done()
        older.commit()
        assert future.result(60).positions == {0: 5}
        run(older, "insert into stored values (0, 6, 0, 'x')")
        with pytest.raises(Fenced):
            offsets.save(older, claim, {0: 6})
        older.rollback()
    assert [row[1] for row in database.stored()] == [5]


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_save_that_waits_for_a_claim(postgres: PostgresServer, level: str) -> None:
    """Fenced, or in the stricter levels refused by the database itself; never stored."""
    database = postgres_database(postgres.dsn, "waits_for_claim_" + level.replace(" ", "_"))
    offsets = OffsetStore()
    with (
        opened(database.connect) as older,
        opened(database.connect) as newer,
        ThreadPoolExecutor(1) as pool,
    ):
        claim = offsets.claim(older, "loader", CLICKS)
        run(older, f"set default_transaction_isolation to '{level}'")
        older.commit()
        run(older, "insert into stored values (0, 5, 0, 'x')")
        run(newer, "update tstreams_offsets set epoch = epoch + 1, holder = 'newer'")
        future = pool.submit(offsets.save, older, claim, {0: 5})
        eventually(lambda: is_waiting(database))
        newer.commit()
        refusal = Fenced if level == "read committed" else psycopg.errors.SerializationFailure
        with pytest.raises(refusal):
            future.result(60)
        older.rollback()
        run(older, "insert into stored values (0, 5, 0, 'x')")
        with pytest.raises(Fenced):
            offsets.save(older, claim, {0: 5})
        older.rollback()
    assert database.stored() == []


def test_sqlite_with_a_snapshot_from_before_the_claim(tmp_path: Any) -> None:
    """In WAL mode a reader that turns writer late is refused by SQLite itself."""
    database = sqlite_database(tmp_path / "test.db")
    offsets = OffsetStore()
    with opened(database.connect) as older, opened(database.connect) as newer:
        run(older, "pragma journal_mode = wal")
        claim = offsets.claim(older, "loader", CLICKS)
        run(older, "begin")
        run(older, "select * from stored")
        offsets.claim(newer, "loader", CLICKS)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            offsets.save(older, claim, {0: 5})
        older.rollback()
        with pytest.raises(Fenced):
            offsets.save(older, claim, {0: 5})


def test_many_claim_at_once(database: EmptyDatabase) -> None:
    """Also the table is made only now. Each has an epoch of its own; the last one holds the name."""
    offsets = OffsetStore()
    count = 8
    barrier = threading.Barrier(count)

    def take(_: int) -> Claim:
        with opened(database.connect) as connection:
            barrier.wait()
            return offsets.claim(connection, "loader", CLICKS)

    with ThreadPoolExecutor(count) as pool:
        claims = sorted(pool.map(take, range(count)), key=lambda it: it.epoch)
    assert [claim.epoch for claim in claims] == list(range(1, count + 1))
    with opened(database.connect) as connection:
        for claim in claims[:-1]:
            with pytest.raises(Fenced):
                offsets.save(connection, claim, {0: 1})
            connection.rollback()
            with pytest.raises(Fenced):
                offsets.renew(connection, claim)
        offsets.save(connection, claims[-1], {0: 1})
        connection.commit()
        assert offsets.renew(connection, claims[-1]).positions == {0: 1}
