"""Which failures of a database pass by themselves, told without knowing its driver."""

from __future__ import annotations

import sqlite3

_PASSING = frozenset({"OperationalError", "InterfaceError"})
"""What drivers raise for lost connections, deadlocks, failed serialisations and servers that shut down.
The others (IntegrityError, DataError, ProgrammingError, ...) are about what was asked for."""

_SQLITE_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)


def is_passing(error: BaseException) -> bool:
    """Whether the same may work when it is tried again, on a new connection."""
    if getattr(error, "connection_invalidated", False):  # SQLAlchemy has seen that it is gone
        return True
    cause = getattr(error, "orig", None) or error  # what SQLAlchemy has wrapped
    if isinstance(cause, sqlite3.Error):
        # SQLite calls a misspelt table an OperationalError too: only the code tells.
        code = getattr(cause, "sqlite_errorcode", None)
        return code is not None and code & 0xFF in _SQLITE_PASSING
    return bool(_names(cause) & _PASSING)


def is_about_integrity(error: BaseException) -> bool:
    """Whether a row was there already."""
    return "IntegrityError" in _names(error)


def _names(error: BaseException) -> set[str]:
    """DB-API settles the names of the classes of errors, but every driver has its own classes."""
    return {cls.__name__ for cls in type(error).__mro__}
