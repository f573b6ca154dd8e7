"""Everything that can go wrong, as types. Each has a `code`, which is what travels on the wire.

A tree of its own, beside that of moebius: the core raises these, and the core must not import a package
that brings an event loop with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar


class Error(Exception):
    """The root of all tstreams errors. The message says what happened, to what, and what to do."""

    code = "error"
    _classes: ClassVar[dict[str, type[Error]]] = {}

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__:  # a private subclass travels as the public one it belongs to
            Error._classes[cls.code] = cls

    @staticmethod
    def from_wire(code: str, message: str) -> Error:
        """The error that a server named."""
        if code == Unavailable.code and (found := NotLeader.read(message)) is not None:
            return found
        return Error._classes.get(code, Error)(message)


class NotFound(Error):
    """There is no such stream (or agent, or transaction)."""

    code = "not_found"


class AlreadyExists(Error):
    """The name is taken."""

    code = "already_exists"


class InvalidState(Error):
    """It cannot be done in the state that the thing is in: a closed agent, a finished transaction."""

    code = "invalid_state"


class Expired(InvalidState):
    """The transaction's lease or the stream's ttl ran out before it was checkpointed."""

    code = "expired"


class Fenced(Error):
    """A newer agent of the same name has taken over; this one can write no more."""

    code = "fenced"


class TooLarge(Error):
    """Over a limit of size or number."""

    code = "too_large"


class BadRequest(Error):
    """It makes no sense: a negative partition, a bad name, an empty batch."""

    code = "bad_request"


class Unauthorized(Error):
    """The credentials were missing or refused."""

    code = "unauthorized"


class Unavailable(Error):
    """The server cannot do it now: no connection, a full disk, a shard that stopped."""

    code = "unavailable"


class Timeout(Unavailable):
    """The deadline passed. Whether it took effect is not known."""

    code = "timeout"


class Corrupt(Error):
    """Bytes on the disk or on the wire are not what was written. The message says which."""

    code = "corrupt"


class NotLeader(Unavailable):
    """This node does not lead the shard, or cannot say now what has become of a request. `addresses` are those of the
    node that leads, as far as it is known. Whoever asks the leader again, with the same number, gets the answer.

    It travels as `Unavailable`, which is what older clients take it for; newer ones read the rest from its text.
    """

    _TEXT = re.compile(r"shard (\d+) is led elsewhere in epoch (\d+): ask ([^()]*?)(?: \((.*)\))?")
    _NOBODY = "another node, soon"

    def __init__(
        self, shard: int, epoch: int, addresses: Sequence[str] = (), reason: str = ""
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        self.addresses = tuple(addresses)
        self.reason = reason
        """What has happened, if it is more than that another node leads."""
        where = ", ".join(addresses) or self._NOBODY
        why = f" ({reason})" if reason else ""
        super().__init__(f"shard {shard} is led elsewhere in epoch {epoch}: ask {where}{why}")

    @classmethod
    def read(cls, message: str) -> NotLeader | None:
        """The error that a server named so; None if it is another one."""
        found = cls._TEXT.fullmatch(message)
        if found is None:
            return None
        shard, epoch, where, why = found.groups()
        addresses = () if where == cls._NOBODY else where.split(", ")
        return cls(int(shard), int(epoch), addresses, why or "")
