"""Statements for every driver, and which failures pass."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest
import sqlalchemy.exc

from tstreams.sinks.failures import is_about_integrity, is_passing
from tstreams.sinks.parameters import bound

STATEMENT = "update t set a = :a, b = b + 1 where c = :c_d and a = :a"


@pytest.mark.parametrize(
    ("style", "text", "parameters"),
    [
        ("qmark", "update t set a = ?, b = b + 1 where c = ? and a = ?", (1, 2, 1)),
        ("format", "update t set a = %s, b = b + 1 where c = %s and a = %s", (1, 2, 1)),
        ("numeric", "update t set a = :1, b = b + 1 where c = :2 and a = :3", (1, 2, 1)),
        ("named", STATEMENT, {"a": 1, "c_d": 2}),
        (
            "pyformat",
            "update t set a = %(a)s, b = b + 1 where c = %(c_d)s and a = %(a)s",
            {"a": 1, "c_d": 2},
        ),
    ],
)
def test_statements(style: str, text: str, parameters: object) -> None:
    for _ in range(2):
        assert bound(STATEMENT, {"a": 1, "c_d": 2, "other": 3}, style) == (text, parameters)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (psycopg.OperationalError("the connection is closed"), True),
        (psycopg.errors.DeadlockDetected(), True),
        (psycopg.errors.SerializationFailure(), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.UndefinedTable(), False),
        (psycopg.errors.UniqueViolation(), False),
        (psycopg.DataError(), False),
        (sqlalchemy.exc.OperationalError("s", {}, psycopg.OperationalError()), True),
        (sqlalchemy.exc.OperationalError("s", {}, sqlite3.OperationalError("misspelt")), False),
        (sqlalchemy.exc.InternalError("s", {}, OSError(), connection_invalidated=True), True),
        (sqlite3.OperationalError("misspelt"), False),
        (sqlite3.IntegrityError("twice"), False),
        (ConnectionError("of something else"), False),
        (KeyError("x"), False),
    ],
)
def test_which_failures_pass(error: Exception, passing: bool) -> None:
    assert is_passing(error) is passing


def test_sqlite_tells_by_its_code(tmp_path: Path) -> None:
    one, two = (sqlite3.connect(tmp_path / "x.db", timeout=0) for _ in range(2))
    one.execute("begin immediate")
    with pytest.raises(sqlite3.OperationalError) as busy:
        two.execute("begin immediate")
    assert is_passing(busy.value)
    with pytest.raises(sqlite3.OperationalError) as misspelt:
        two.execute("select * from nothing")
    assert not is_passing(misspelt.value)
    one.close()
    two.close()


def test_rows_that_are_there_already() -> None:
    assert is_about_integrity(psycopg.errors.UniqueViolation())
    assert is_about_integrity(sqlite3.IntegrityError())
    assert not is_about_integrity(psycopg.OperationalError())
