"""The loop that stores a stream in a database: where it goes on, what fails, who is fenced."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import sqlalchemy

import tstreams
from tstreams import Client, Offset
from tstreams.server import Node
from tstreams.sinks import Loaded, into_database

from ..tstreams.conftest import eventually
from .conftest import NewDatabase
from .databases import EmptyDatabase, content, fill, run, store


def test_a_loop_until_nothing_comes(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    fill(ts, clicks, 100)
    done = into_database(ts, clicks, "loader", database.connect, store, batch=30, max_wait=0)
    assert (done.transactions, done.items, done.retries) == (100, 199, 0)
    assert 4 <= done.commits <= 20
    assert database.stored() == content(ts, clicks)
    assert into_database(ts, clicks, "loader", database.connect, store, max_wait=0) == Loaded()
    fill(ts, clicks, 5)
    done = into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    assert done.transactions == 5
    assert database.stored() == content(ts, clicks)


def test_an_engine(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    fill(ts, clicks, 50)
    engine = database.engine()
    done = into_database(ts, clicks, "loader", engine, store, batch=7, max_wait=0)
    assert done.transactions == 50
    engine.dispose()
    assert database.stored() == content(ts, clicks)


def test_one_at_a_time(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    """In the order of each partition, and never more than was said."""
    fill(ts, clicks, 30)
    sizes = []

    def fn(connection: Any, transactions: Any) -> None:
        sizes.append(len(transactions))
        store(connection, transactions)

    into_database(ts, clicks, "loader", database.connect, fn, batch=1, max_wait=0)
    assert sizes == [1] * 30
    assert database.stored() == content(ts, clicks)


def test_large_transactions_are_not_gathered(ts: Client, database: EmptyDatabase) -> None:
    """A batch is in memory as a whole, so its bytes count too."""
    ts.create_stream("large")
    with ts.producer("large") as producer:
        for _ in range(30):
            producer.instant([bytes(1_000_000)])
        with producer.transaction() as txn:  # comes bit by bit
            for _ in range(3):
                txn.send_many([bytes(1_000_000)] * 3)
        producer.instant([b"end"])
    sizes: list[int] = []
    into_database(
        ts,
        "large",
        "loader",
        database.connect,
        lambda connection, found: sizes.append(len(found)),
        max_wait=0,
    )
    assert sum(sizes) == 32
    assert max(sizes) <= 10


def test_stop(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    """What is committed stays; called again it goes on there."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            into_database, ts, clicks, "loader", database.connect, store, stop=stop
        )
        for _ in range(3):
            fill(ts, clicks, 10)
            eventually(lambda: database.stored() == content(ts, clicks))
        stop.set()
        assert future.result(30).transactions == 30
    assert into_database(ts, clicks, "loader", database.connect, store, stop=stop) == Loaded(), (
        "it was stopped before it began"
    )


def test_a_failing_fn(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    """Nothing of its batch is stored, nothing is passed over; called again, it is the next."""
    fill(ts, clicks, 20)
    expected = content(ts, clicks)
    poison = expected[7][1]

    def fn(connection: Any, transactions: Any) -> None:
        store(connection, transactions)
        if any(txn.id == poison for txn in transactions):
            raise KeyError("poison")

    for _ in range(3):
        with pytest.raises(KeyError, match="poison") as caught:
            into_database(ts, clicks, "loader", database.connect, fn, batch=3, max_wait=0)
        assert "transactions of 'clicks' were stored" in caught.value.__notes__[0]
        found = database.stored()
        assert set(found) < set(expected)
        assert len(found) == len(set(found))
        assert poison not in [row[1] for row in found]
    into_database(ts, clicks, "loader", database.connect, store, batch=3, max_wait=0)
    assert database.stored() == expected


def test_errors_of_fn_about_what_it_asked_for_go_up_at_once(
    ts: Client, clicks: str, database: EmptyDatabase
) -> None:
    fill(ts, clicks, 5)

    def misspelt(connection: Any, transactions: Any) -> None:
        run(connection, "insert into no_such_table values (1)")

    expected = (
        sqlite3.OperationalError if database.kind == "sqlite" else psycopg.errors.UndefinedTable
    )
    calls = []

    def fn(connection: Any, transactions: Any) -> None:
        calls.append(1)
        misspelt(connection, transactions)

    with pytest.raises(expected):
        into_database(ts, clicks, "loader", database.connect, fn, max_wait=0)
    engine = database.engine()
    with pytest.raises(sqlalchemy.exc.DBAPIError):
        into_database(ts, clicks, "loader", engine, fn, max_wait=0)
    engine.dispose()
    assert len(calls) == 2


def test_ctrl_c_rolls_back(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    fill(ts, clicks, 5)

    def fn(connection: Any, transactions: Any) -> None:
        store(connection, transactions)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        into_database(ts, clicks, "loader", database.connect, fn, max_wait=0)
    assert database.stored() == []
    into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    assert database.stored() == content(ts, clicks)


# Where it goes on.


def test_another_database_begins_anew(ts: Client, clicks: str, new_database: NewDatabase) -> None:
    """Where it stands is the database's to say: not the stream's, not another's."""
    first, second = new_database(), new_database()
    fill(ts, clicks, 20)
    with ts.consumer(clicks, "loader") as consumer:
        assert len(list(consumer.read(max_wait=0))) == 20
        consumer.checkpoint()
    for database in (first, second):
        into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
        assert database.stored() == content(ts, clicks)


def test_a_database_that_was_put_back(ts: Client, clicks: str, new_database: NewDatabase) -> None:
    """From a backup: the offsets go back with the data, so that what is missing comes again."""
    database = new_database()
    fill(ts, clicks, 10)
    into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    rows = database.run("select * from stored")
    places = database.run("select partition_no, transaction_id from tstreams_offsets")
    fill(ts, clicks, 10)
    into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    database.run("delete from stored")
    for row in rows:
        database.run(f"insert into stored values {row}")
    for partition, place in places:
        database.run(
            f"update tstreams_offsets set transaction_id = {place} where partition_no = {partition}"
        )
    into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    assert database.stored() == content(ts, clicks)


def test_several_streams_and_names_in_one_table(ts: Client, database: EmptyDatabase) -> None:
    for stream in ("a", "b"):
        ts.create_stream(stream, partitions=4)
        fill(ts, stream, 20)
    for name in ("one", "two"):
        for stream in ("a", "b"):
            done = into_database(ts, stream, name, database.connect, store, max_wait=0)
            assert done.transactions == 20
    expected = sorted(2 * (content(ts, "a") + content(ts, "b")))
    assert database.stored() == expected


def test_a_stream_that_was_made_anew(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    fill(ts, clicks, 10)
    into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    first = content(ts, clicks)
    ts.delete_stream(clicks)
    ts.create_stream(clicks, partitions=4)
    fill(ts, clicks, 10)
    into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    assert database.stored() == sorted(first + content(ts, clicks))


def test_a_stream_of_the_same_name_on_a_server_whose_clock_is_behind(
    ts: Client, clicks: str, database: EmptyDatabase, tmp_path: Any
) -> None:
    """Its ids are less than those that were stored: by id alone it would look as if all were done."""
    fill(ts, clicks, 10)
    into_database(ts, clicks, "loader", database.connect, store, max_wait=0)
    first = content(ts, clicks)
    behind = Node(tmp_path / "behind", listen=["tcp://127.0.0.1:0"], clock=lambda: 10**12)
    with behind.in_thread() as node, tstreams.connect(node.addresses[0]) as other:
        other.create_stream("before")
        other.create_stream(clicks, partitions=4)
        assert other.stream(clicks).id != ts.stream(clicks).id
        fill(other, clicks, 10)
        into_database(other, clicks, "loader", database.connect, store, max_wait=0)
        both = sorted(first + content(other, clicks))
        assert database.stored() == both
    assert into_database(ts, clicks, "loader", database.connect, store, max_wait=0) == Loaded()
    assert database.stored() == both


def test_some_partitions(ts: Client, clicks: str, database: EmptyDatabase) -> None:
    fill(ts, clicks, 40)
    expected = content(ts, clicks)
    for partitions in ([0, 2], [0, 2], [1, 2]):
        into_database(
            ts, clicks, "loader", database.connect, store, partitions=partitions, max_wait=0
        )
    assert database.stored() == [row for row in expected if row[0] != 3]


@pytest.mark.parametrize("start", ["newest", "after", "at"])
def test_where_it_begins_is_kept(
    ts: Client, clicks: str, database: EmptyDatabase, start: str
) -> None:
    """Also if the first one stores nothing: who begins again begins there, not at a newer newest."""
    fill(ts, clicks, 8)
    before = set(content(ts, clicks))
    last = max(row[1] for row in before)
    offset = {
        "newest": Offset.newest(),
        "after": Offset.after(last),
        "at": Offset.at(datetime.now(UTC)),
    }[start]
    options: dict[str, Any] = {"start": offset, "max_wait": 0}
    into_database(ts, clicks, "loader", database.connect, store, **options)
    fill(ts, clicks, 8)
    expected = sorted(set(content(ts, clicks)) - before)
    assert len(expected) == 15

    def fails(connection: Any, transactions: Any) -> None:
        store(connection, transactions)
        raise ValueError("not this time")

    options["start"] = Offset.newest()
    with pytest.raises(ValueError, match="not this time"):
        into_database(ts, clicks, "loader", database.connect, fails, **options)
    into_database(ts, clicks, "loader", database.connect, store, **options)
    assert database.stored() == expected
