"""What becomes of an instant transaction that nobody waits for at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import moebius

from ...errors import Corrupt, Error
from ...protocol import Done, decode_reply
from .failures import translated
from .session import Session

if TYPE_CHECKING:
    from moebius.messages import Parts


class Promise(Protocol):
    """A future of either kind. One whose user has lost interest is done already."""

    def done(self) -> bool:
        """Whether nothing can be put into it any more."""

    def set_result(self, result: int, /) -> None:
        """It is the id of a transaction."""

    def set_exception(self, exception: BaseException, /) -> None:
        """It failed."""


class InstantSink:
    """Puts the id of an instant transaction into a future. A moebius sink; without a future, for nobody."""

    __slots__ = ("future", "number", "session", "size")

    def __init__(self, future: Promise | None) -> None:
        self.future = future
        self.session: Session | None = None
        self.number = self.size = 0

    def item(self, parts: Parts) -> None:
        """One response of many: there are no such requests."""

    def done(self, parts: Parts | None) -> None:
        """It was answered or, if nobody wants an answer, sent."""
        session = self.session
        assert session is not None
        session.answered(self.number, self.size, None)
        if self.future is None or self.future.done():
            return
        try:
            reply = decode_reply(parts[0]) if parts else None
        except Corrupt as error:
            self.future.set_exception(error)
            return
        if isinstance(reply, Done):
            self.future.set_result(reply.id)
        else:
            self.future.set_exception(Error(f"the server answered with {type(reply).__name__}"))

    def fail(self, error: moebius.Error) -> None:
        """It failed."""
        session = self.session
        assert session is not None
        failure = session.named(translated(error))
        session.answered(self.number, self.size, failure)
        if self.future is not None and not self.future.done():
            self.future.set_exception(failure)
