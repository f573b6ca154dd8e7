"""Offsets in a database: claiming, saving, fencing; every driver and every way to write parameters."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pg8000.dbapi
import psycopg
import psycopg.rows
import psycopg2
import pytest

from benchmarks.postgres import PostgresServer
from tstreams import BadRequest, Client, Fenced, Stream
from tstreams.sinks import OffsetStore
from tstreams.sinks.parameters import STYLES

from .databases import EmptyDatabase, content, fill, opened, postgres_database, run, store

CLICKS = Stream("clicks", 4, timedelta(days=1), id=7)
Connect = Callable[[], Any]


def pg8000_connect(postgres: PostgresServer, name: str, style: str) -> Any:
    """This driver writes parameters in whichever way it is told to."""
    pg8000.dbapi.paramstyle = style
    return pg8000.dbapi.connect("postgres", host="127.0.0.1", port=postgres.port, database=name)


DRIVERS = ["sqlite3", "sqlite3-rows", "psycopg", "psycopg-dicts", "psycopg2"]
DRIVERS += ["sqlalchemy-sqlite", "sqlalchemy-postgres", *(f"pg8000-{style}" for style in STYLES)]


@pytest.fixture(params=DRIVERS)
def connect(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Connect]:
    """Makes connections to one empty database."""
    driver: str = request.param
    if "sqlite" in driver:
        from .databases import sqlite_database

        database = sqlite_database(tmp_path / "test.db")
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        name = request.node.name.translate(str.maketrans("[]-", "___")).lower()
        database = postgres_database(postgres.dsn, name[:60])
    with contextlib.ExitStack() as stack:
        if driver.startswith("sqlalchemy"):
            engine = database.engine()
            stack.callback(engine.dispose)
            yield engine.connect
        elif driver == "sqlite3-rows":

            def connect_rows() -> sqlite3.Connection:
                connection = sqlite3.connect(database.where)
                connection.row_factory = sqlite3.Row
                return connection

            yield connect_rows
        elif driver == "psycopg-dicts":
            yield lambda: psycopg.connect(database.where, row_factory=psycopg.rows.dict_row)
        elif driver == "psycopg2":
            yield lambda: psycopg2.connect(database.where)
        elif driver.startswith("pg8000"):
            style = driver.partition("-")[2]
            stack.callback(setattr, pg8000.dbapi, "paramstyle", pg8000.dbapi.paramstyle)
            yield lambda: pg8000_connect(postgres, name[:60], style)
        else:
            yield database.connect


def rows(connect: Connect, statement: str) -> list[tuple[Any, ...]]:
    with opened(connect) as connection:
        return run(connection, statement)


def test_every_driver(connect: Connect) -> None:
    """Claim, save with data, look, claim again, and the first is fenced."""
    offsets = OffsetStore()
    with opened(connect) as connection:
        claim = offsets.claim(connection, "loader", CLICKS)
        assert (claim.epoch, claim.positions) == (1, {})
        for last in (5, 6):
            run(connection, f"insert into stored values (1, {last}, 0, 'x')")
            offsets.save(connection, claim, {1: last, 3: 100 + last, 0: 17})
            connection.commit()
        run(connection, "insert into stored values (1, 7, 0, 'x')")
        offsets.save(connection, claim, {1: 7})
        connection.rollback()
        assert offsets.load(connection, "loader", CLICKS) == {0: 17, 1: 6, 3: 106}
        connection.rollback()
    with opened(connect) as newer, opened(connect) as older:
        second = offsets.claim(newer, "loader", CLICKS)
        assert second.epoch == 2
        assert second.positions == {0: 17, 1: 6, 3: 106}
        with pytest.raises(Fenced, match=r"'loader'.*'clicks'.*tstreams_offsets"):
            offsets.save(older, claim, {1: 8})
        older.rollback()
        offsets.save(newer, second, {1: 8})
        newer.commit()
    assert rows(connect, "select id from stored order by id") == [(5,), (6,)]


def test_what_can_be_given_to_save(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    """A transaction, several, or positions; a connection or a cursor."""
    fill(ts, clicks, 20)
    stream = ts.stream(clicks)
    offsets = OffsetStore("mine")
    with opened(database.connect) as connection, ts.consumer(clicks, "loader") as consumer:
        claim = offsets.claim(connection, consumer.name, stream)
        claim.seek(consumer)
        read = list(consumer.read(max_wait=0))
        offsets.save(connection, claim, read[0])
        cursor = connection.cursor()
        cursor.execute("select 1 union select 2 order by 1")
        offsets.save(cursor, claim, read)
        assert [row[0] for row in cursor.fetchall()] == [1, 2]  # it was not disturbed
        store(connection, read)
        connection.commit()
        expected = {txn.partition: txn.id for txn in read}
        assert offsets.load(cursor, "loader", stream) == expected
    assert database.stored() == content(ts, clicks)


def test_a_reader_goes_on_where_the_database_says(
    ts: Client, clicks: str, database: EmptyDatabase
) -> None:
    fill(ts, clicks, 100)
    offsets = OffsetStore()
    for _ in range(10):
        with opened(database.connect) as connection, ts.consumer(clicks, "loader") as consumer:
            claim = offsets.claim(connection, "loader", ts.stream(clicks))
            claim.seek(consumer)
            for number, txn in enumerate(consumer.read(max_wait=0)):
                store(connection, [txn])
                if number == 11:
                    break  # the last one is not committed
                offsets.save(connection, claim, txn)
                connection.commit()
    assert database.stored() == content(ts, clicks)


@pytest.mark.parametrize(
    "table", ["", "a b", "a;drop table b", 'a"b', "1a", "a.b.c", "ä", "x" * 64]
)
def test_tables_that_are_not_safe(table: str) -> None:
    with pytest.raises(BadRequest, match="name of a table"):
        OffsetStore(table)


def test_a_table_in_a_schema(postgres: PostgresServer) -> None:
    database = postgres_database(postgres.dsn, "in_a_schema")
    database.run("create schema audit")
    offsets = OffsetStore("audit.places")
    with opened(database.connect) as connection:
        claim = offsets.claim(connection, "loader", CLICKS)
        offsets.save(connection, claim, {0: 1})
        connection.commit()
    assert database.run("select partition_no from audit.places order by 1") == [(-1,), (0,)]


def test_whoever_may_not_make_tables_is_told_by_the_database(postgres: PostgresServer) -> None:
    """What the statement for the table is can be asked for."""
    database = postgres_database(postgres.dsn, "no_right")
    database.run("create role humble login; revoke create on schema public from public")
    with opened(lambda: psycopg.connect(database.where, user="humble")) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            OffsetStore().claim(connection, "loader", CLICKS)
        database.run(OffsetStore().ddl)
        database.run("grant select, insert, update on tstreams_offsets to humble")
        assert OffsetStore().claim(connection, "loader", CLICKS).epoch == 1


def test_names_and_streams_do_not_meet(database: EmptyDatabase) -> None:
    offsets = OffsetStore()
    other = Stream("orders'; drop table stored; --", 1, timedelta(days=1), id=8)
    with opened(database.connect) as connection:
        claims = [
            offsets.claim(connection, reader, stream)
            for reader in ("one", "two", 'ö "%s" :x ?')
            for stream in (CLICKS, other)
        ]
        for number, claim in enumerate(claims):
            offsets.save(connection, claim, {0: number})
        connection.commit()
        again = [offsets.renew(connection, claim) for claim in claims]
        assert [claim.positions for claim in again] == [{0: number} for number in range(6)]


def test_a_stream_that_was_made_anew_begins_anew(
    ts: Client, clicks: str, database: EmptyDatabase
) -> None:
    offsets = OffsetStore()
    with opened(database.connect) as connection:
        claim = offsets.claim(connection, "loader", ts.stream(clicks))
        offsets.save(connection, claim, {0: 5, 1: 6})
        connection.commit()
        ts.delete_stream(clicks)
        ts.create_stream(clicks)
        anew = ts.stream(clicks)
        assert anew.id != claim.stream_id
        claim = offsets.claim(connection, "loader", anew)
        assert claim.positions == {}
        offsets.save(connection, claim, {0: 2})
        connection.commit()
        assert offsets.load(connection, "loader", anew) == {0: 2}


def test_many_partitions(database: EmptyDatabase) -> None:
    offsets = OffsetStore()
    with opened(database.connect) as connection:
        claim = offsets.claim(connection, "loader", CLICKS)
        for most in (300, 500, 500):  # all new, some new, none new
            positions = {partition: most + partition for partition in range(most)}
            offsets.save(connection, claim, positions)
            connection.commit()
            assert offsets.load(connection, "loader", CLICKS) == positions
            connection.commit()


@pytest.mark.parametrize(
    "positions", [{-1: 5}, {0: -5}, {0: 2**63}, {0: "5"}, {0.5: 1}, {True: 1}, {0: None}]
)
def test_positions_that_make_no_sense(database: EmptyDatabase, positions: Any) -> None:
    with opened(database.connect) as connection:
        claim = OffsetStore().claim(connection, "loader", CLICKS)
        with pytest.raises(BadRequest):
            OffsetStore().save(connection, claim, positions)
        assert OffsetStore().load(connection, "loader", CLICKS) == {}


def test_transactions_of_another_stream(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    ts.create_stream("other")
    fill(ts, "other", 1, partitions=1)
    (txn,) = ts.consumer("other").read(max_wait=0)
    with opened(database.connect) as connection:
        claim = OffsetStore().claim(connection, "loader", ts.stream(clicks))
        with pytest.raises(BadRequest, match=r"'other'.*'clicks'"):
            OffsetStore().save(connection, claim, txn)
