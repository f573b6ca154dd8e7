"""What went wrong on the way, in the terms of tstreams."""

from __future__ import annotations

import re

import moebius

from ... import errors
from ...errors import Error, InvalidState, Timeout, Unauthorized, Unavailable

_BY_CODE: dict[str, type[Error]] = {
    moebius.DeadlineExceeded.code: Timeout,
    moebius.Disconnected.code: Unavailable,
    moebius.Stopping.code: Unavailable,
    moebius.Overloaded.code: Unavailable,
    moebius.WorkerDied.code: Unavailable,
    moebius.Cancelled.code: Unavailable,
    moebius.Closed.code: InvalidState,
    moebius.Unauthorized.code: Unauthorized,
    moebius.UnknownCommand.code: errors.BadRequest,
}
"""The codes that only the connection knows. All others are those of `tstreams.errors`, or no one's."""

_SESSION_ENDED = "the session has ended"
_TRANSACTION = re.compile(r"transaction (\d+)\b")
_AGENT = re.compile(r"agent (\d+)\b")


def translated(error: moebius.Error) -> Error:
    """The error of the connection, or of the server, as users know it."""
    kind = _BY_CODE.get(error.code)
    if kind is not None:
        return kind(error.message)
    if error.code == InvalidState.code and error.message.startswith(_SESSION_ENDED):
        return InvalidState(
            "the session has ended on the server, which did not hear of this client for too long: "
            "what was open has expired; make producers and consumers anew"
        )
    return Error.from_wire(error.code, error.message)


def is_session_end(error: Error | None) -> bool:
    """Whether a request failed because its session is no more."""
    return type(error) is InvalidState and error.message.startswith(_SESSION_ENDED)


def transaction_in(error: Error) -> int | None:
    """The transaction that an error of the server is about: one of many may have expired."""
    found = _TRANSACTION.search(error.message)
    return int(found[1]) if found else None


def agent_in(error: Error) -> int | None:
    """The agent that an error of the server begins with: it knows agents by their numbers."""
    found = _AGENT.match(error.message)
    return int(found[1]) if found else None
