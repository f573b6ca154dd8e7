"""One face for what users have: DB-API connections and cursors, SQLAlchemy connections and sessions."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..errors import BadRequest, InvalidState
from .parameters import bound, style_of

if TYPE_CHECKING:
    import sqlalchemy

Values: TypeAlias = Mapping[str, Any]


class Database(Protocol):
    """A connection to a database. Statements are written with names: `where reader = :reader`."""

    connection: Any
    """What the user gave, or what is handed to the user."""

    def execute(self, statement: str, values: Values) -> None:
        """Run a statement."""

    def change(self, statement: str, values: Values) -> int:
        """Run a statement; the number of rows that it met."""

    def change_many(self, statement: str, rows: Sequence[Values]) -> int:
        """Run it for each of the rows; the number of rows that it met, or something else."""

    def query(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """The rows that it gives."""

    def begin(self) -> None:
        """Begin a transaction. `InvalidState` if every statement would be one of its own."""

    def check_begun(self) -> None:
        """`InvalidState` if the transaction that was begun is over, as far as that can be told."""

    def check_atomic(self) -> None:
        """`InvalidState` if every statement is a transaction of its own."""

    def check_idle(self) -> None:
        """`InvalidState` if a transaction is under way."""

    def commit(self) -> None:
        """Commit what was done."""

    def rollback(self) -> None:
        """Undo what was done."""

    def close(self) -> None:
        """Give it back."""


class _DbApi:
    """A connection of a DB-API 2 driver."""

    def __init__(self, given: Any, style: str | None) -> None:
        # A cursor may be in the middle of a result, or unable to write: take another of its connection.
        is_cursor = not hasattr(given, "cursor")
        connection = getattr(given, "connection", None) if is_cursor else given
        self.connection = given if connection is None else connection
        self._style = style or style_of(self.connection)
        self._is_seen = False
        """Whether the driver tells that the transaction is there, and so would tell that it is over."""

    def execute(self, statement: str, values: Values) -> None:
        with self._cursor() as cursor:
            cursor.execute(*bound(statement, values, self._style))

    def change(self, statement: str, values: Values) -> int:
        with self._cursor() as cursor:
            cursor.execute(*bound(statement, values, self._style))
            return _counted(cursor.rowcount)

    def change_many(self, statement: str, rows: Sequence[Values]) -> int:
        with self._cursor() as cursor:
            text, _ = bound(statement, rows[0], self._style)
            cursor.executemany(text, [bound(statement, row, self._style)[1] for row in rows])
            return int(cursor.rowcount)

    def query(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        with self._cursor() as cursor:
            cursor.execute(*bound(statement, values, self._style))
            return [_row(row) for row in cursor.fetchall()]

    def begin(self) -> None:
        if isinstance(self.connection, sqlite3.Connection) and not self.connection.in_transaction:
            # By itself it would begin with the first write, and fail if others write since the first read.
            self.connection.execute("begin immediate")
        self.check_atomic()
        if is_in_transaction(self.connection) is False:
            self.query("select 1", {})  # the others begin by themselves, with the first statement
        self._is_seen = is_in_transaction(self.connection) is True

    def check_begun(self) -> None:
        if self._is_seen and not is_in_transaction(self.connection):
            raise _over()

    def check_atomic(self) -> None:
        if commits_by_itself(self.connection):
            raise _autocommits()

    def check_idle(self) -> None:
        # sqlite3 with autocommit=False always has one under way.
        if is_in_transaction(self.connection) and not (
            hasattr(self.connection, "in_transaction")
            and getattr(self.connection, "autocommit", None) is False
        ):
            raise _busy()

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[Any]:
        if not hasattr(self.connection, "cursor"):  # a cursor that does not tell its connection
            yield self.connection
            return
        cursor = self.connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()


class _SqlAlchemy:
    """A connection of SQLAlchemy."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self.connection = connection

    def execute(self, statement: str, values: Values) -> None:
        self._run(statement, values)

    def change(self, statement: str, values: Values) -> int:
        return _counted(self._run(statement, values).rowcount)

    def change_many(self, statement: str, rows: Sequence[Values]) -> int:
        return int(self._run(statement, rows).rowcount)

    def query(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._run(statement, values)]

    def _run(
        self, statement: str, values: Values | Sequence[Values]
    ) -> sqlalchemy.CursorResult[Any]:
        import sqlalchemy

        return self.connection.execute(sqlalchemy.text(statement), values)

    def begin(self) -> None:
        self.connection.begin()
        self.check_atomic()

    def check_begun(self) -> None:
        if not self.connection.in_transaction():
            raise _over()

    def check_atomic(self) -> None:
        if not self.connection.in_transaction():
            self.connection.begin()  # as the next statement would
        if commits_by_itself(self.connection.connection.dbapi_connection):
            raise _autocommits()

    def check_idle(self) -> None:
        if self.connection.in_transaction():
            raise _busy()

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


def database_of(given: Any, style: str | None) -> Database:
    """The face of what the user gave: a connection, a cursor or a session."""
    if hasattr(given, "__aenter__") and not hasattr(given, "__enter__"):
        raise BadRequest(
            f"{type(given).__qualname__} is made for asyncio; with SQLAlchemy use "
            "connection.run_sync(...), with others a thread"
        )
    if "sqlalchemy" in sys.modules:  # whoever has something of it has imported it
        import sqlalchemy

        if isinstance(given, sqlalchemy.Connection):
            return _SqlAlchemy(given)
        if isinstance(given, sqlalchemy.Engine):
            raise BadRequest("an engine has no transaction: give one of its connections")
        found = getattr(given, "connection", None)
        if callable(found) and callable(getattr(given, "get_bind", None)):  # a session of its ORM
            return _SqlAlchemy(given.connection())
    if not hasattr(given, "cursor") and not hasattr(given, "execute"):
        raise BadRequest(f"this is neither a connection nor a cursor of a database: {given!r}")
    return _DbApi(given, style)


@contextlib.contextmanager
def reached(given: Any, style: str | None) -> Iterator[Database]:
    """The same, for something that has a transaction of its own; engines give a connection for it."""
    if is_engine(given):
        with given.connect() as connection:
            yield _SqlAlchemy(connection)
    else:
        yield database_of(given, style)


def is_engine(given: Any) -> bool:
    """Whether it is an engine of SQLAlchemy."""
    if "sqlalchemy" not in sys.modules:
        return False
    import sqlalchemy

    return isinstance(given, sqlalchemy.Engine)


def is_in_transaction(connection: Any) -> bool | None:
    """Whether a transaction is under way; None if this driver does not tell."""
    found = getattr(connection, "in_transaction", None)  # sqlite3
    if isinstance(found, bool):
        return found
    status = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg
    return status != 0 if isinstance(status, int) else None


def commits_by_itself(connection: Any) -> bool:
    """Whether the next statement would be a transaction of its own."""
    if is_in_transaction(connection):
        return False
    autocommit = getattr(connection, "autocommit", None)
    if isinstance(autocommit, bool):
        return autocommit
    if hasattr(connection, "in_transaction") and hasattr(connection, "isolation_level"):
        return connection.isolation_level is None  # sqlite3
    return False


def _counted(rows: int) -> int:
    if rows < 0:
        raise InvalidState(
            "this driver does not say how many rows a statement has met (its rowcount is "
            f"{rows}): without that nobody can be fenced"
        )
    return rows


def _row(row: Any) -> tuple[Any, ...]:
    return tuple(row.values() if isinstance(row, Mapping) else row)


def _autocommits() -> InvalidState:
    return InvalidState(
        "this connection commits every statement by itself, so data and offsets would not be written "
        "together: begin a transaction, or switch autocommit off"
    )


def _over() -> InvalidState:
    return InvalidState(
        "the transaction of the database ended inside of the function that stores: leave commit and "
        "rollback to the loop"
    )


def _busy() -> InvalidState:
    return InvalidState(
        "there is a transaction under way on this connection, and taking a name over needs one of its "
        "own: commit or roll back first, or give another connection"
    )
