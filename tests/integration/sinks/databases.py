"""Databases of a test's own, and every way to connect to them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy

ROWS = "create table stored (partition_no int, id bigint, number int, item text)"
"""Without a key: whatever is stored twice can be seen."""


@dataclass(frozen=True)
class EmptyDatabase:
    """An empty database, but for the table `stored`."""

    kind: str
    """sqlite or postgres."""
    where: str
    """The file, or how psycopg connects."""
    url: str
    """What SQLAlchemy calls it."""

    def connect(self) -> Any:
        if self.kind == "sqlite":
            return sqlite3.connect(self.where, timeout=30)
        return psycopg.connect(self.where)

    def engine(self) -> sqlalchemy.Engine:
        return sqlalchemy.create_engine(self.url)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """On a connection of its own."""
        with contextlib.closing(self.connect()) as connection:
            found = run(connection, statement)
            connection.commit()
            return found

    def stored(self) -> list[tuple[Any, ...]]:
        """All rows, in the order of the stream."""
        order = "order by partition_no, id, number, item"
        return self.run(f"select partition_no, id, number, item from stored {order}")


def sqlite_database(path: Path) -> EmptyDatabase:
    made = EmptyDatabase("sqlite", str(path), f"sqlite:///{path}")
    made.run(ROWS)
    return made


def postgres_database(dsn: str, name: str) -> EmptyDatabase:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        port = connection.info.port
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/{name}"
    made = EmptyDatabase("postgres", dsn.replace("dbname=postgres", f"dbname={name}"), url)
    made.run(ROWS)
    return made


def run(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """A statement on whatever kind of connection."""
    if isinstance(connection, sqlalchemy.Connection):
        result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []
    cursor = connection.cursor()
    cursor.execute(statement)
    found = cursor.fetchall() if cursor.description else []
    cursor.close()
    return [tuple(row.values() if isinstance(row, dict) else row) for row in found]


def store(connection: Any, transactions: Any) -> None:
    """What the loops under test do with transactions."""
    for txn in transactions:
        for number, item in enumerate(txn.items):
            values = f"{txn.partition}, {txn.id}, {number}, '{item.decode()}'"
            run(connection, f"insert into stored values ({values})")


def content(ts: Any, stream: str) -> list[tuple[Any, ...]]:
    """What a table has to hold that the stream was stored in."""
    with ts.consumer(stream) as consumer:
        rows = [
            (txn.partition, txn.id, number, item.decode())
            for txn in consumer.read(max_wait=0)
            for number, item in enumerate(txn.items)
        ]
    return sorted(rows)


def fill(ts: Any, stream: str, count: int, partitions: int = 4) -> None:
    """Transactions of one to three items."""
    with ts.producer(stream) as producer:
        futures = [
            producer.instant(
                [b"%d.%d" % (n, k) for k in range(1 + n % 3)],
                partition=n % partitions,
                wait=False,
            )
            for n in range(count)
        ]
        for future in futures:
            future.result()


@contextlib.contextmanager
def opened(connect: Callable[[], Any]) -> Iterator[Any]:
    """A connection, closed in the end, whatever closing needs."""
    connection = connect()
    try:
        yield connection
    finally:
        connection.close()
