"""Everything that can go wrong, as types.

Each class has a `code`, which is what travels on the wire; the client turns a code back into the
class. Raise any of them (or a subclass with a code of your own) in a handler and the caller gets
exactly that. Any other exception reaches the caller as `HandlerFailed`.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """The root of all moebius errors. Subclasses set `code`, the name of the error on the wire."""

    code = "error"
    _classes: ClassVar[dict[str, type[Error]]] = {}

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__:
            Error._classes[cls.code] = cls

    @staticmethod
    def from_wire(code: str, message: str) -> Error:
        """The error that a peer named: its class where the code is known, else `RemoteError`.

        A class whose constructor wants other arguments is made without calling it: what it would
        have added is lost, but not its type and message.
        """
        known = Error._classes.get(code)
        if known is None:
            return RemoteError(message, code)
        try:
            return known(message)
        except Exception:
            error = known.__new__(known, message)
            error.message = message
            return error


def describe(error: BaseException) -> str:
    """The text of an error, whatever it is: fit to travel, and never raising itself."""
    try:
        text = error.message if isinstance(error, Error) else str(error)
        return str(text).encode("utf-8", "replace").decode()[:TEXT_CHARS_MAX]
    except Exception:
        return f"({type(error).__name__} without a text)"


TEXT_CHARS_MAX = 2000
"""The text of a failure on the wire."""


class RemoteError(Error):
    """The server answered with a code that this process has no class for: it is in `code`."""

    code = "remote"

    def __init__(self, message: str = "", code: str = "remote") -> None:
        super().__init__(message)
        self.code = code


class ProtocolError(Error):
    """The peer sent something that is not a message of this protocol."""

    code = "protocol"


class BadRequest(Error):
    """The message was well formed, but asks for something that makes no sense."""

    code = "bad_request"


class UnknownCommand(BadRequest):
    """No handler is registered under that name."""

    code = "unknown_command"


class UnknownStrategy(BadRequest):
    """The request asked for a strategy that does not exist."""

    code = "unknown_strategy"


class TooLarge(Error):
    """A frame, or the requests waiting together, are over a limit."""

    code = "too_large"


class Overloaded(Error):
    """Too many requests in flight, or too many connections. Nothing was done; try again later."""

    code = "overloaded"


class Busy(Error):
    """Strategy IGNORE: another request of the same client is still running."""

    code = "busy"


class Replaced(Error):
    """Strategy REPLACE: a newer request of the same client took this one's place."""

    code = "replaced"


class Cancelled(Error):
    """The request was cancelled before it finished."""

    code = "cancelled"


class DeadlineExceeded(Error):
    """The time allowed for the request ran out. Whether it took effect is not known."""

    code = "deadline_exceeded"


class HandlerFailed(Error):
    """The handler raised an exception that is not a moebius error."""

    code = "handler_failed"


class WorkerDied(Error):
    """The worker process that ran the request ended before it answered."""

    code = "worker_died"


class Unauthorized(Error):
    """The credentials were missing or refused."""

    code = "unauthorized"


class Stopping(Error):
    """The server is shutting down and ended the request."""

    code = "stopping"


class Disconnected(Error):
    """The connection broke with the request under way. Whether it took effect is not known."""

    code = "disconnected"


class Closed(Error):
    """This client (or server) has been closed; make a new one."""

    code = "closed"
