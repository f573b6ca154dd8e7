"""A client's requests, put to a shard's handlers without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from moebius import LATER
from moebius.errors import Error as WireError
from tstreams.protocol import AnyReply, Fetched, decode_reply, encode
from tstreams.server.handlers import Handlers


class Refused(msgspec.Struct, frozen=True):
    """The answer of a request that failed."""

    code: str
    message: str = ""


Answer = AnyReply | Refused


class _Timer:
    """What a loop gives for a call that is to come; here it never comes by itself."""

    def cancel(self) -> None:
        pass


class _Loop:
    def call_later(self, delay_s: float, callback: Any, *arguments: Any) -> _Timer:
        return _Timer()


class _Peer:
    gone = False
    loop = _Loop()

    def flush(self) -> None:
        """Answers are here as soon as they are given."""


class SimulatedRequest:
    """A request on its way: what handlers see of `moebius.Request`, and what came back."""

    client = _Peer()

    def __init__(self, message: msgspec.Struct, *batches: bytes) -> None:
        self.message = message
        self.parts: Sequence[bytes] = (encode(message), *batches)
        self.reply: Answer | None = None
        self.batches: bytes = b""

    @property
    def unanswered(self) -> bool:
        return self.reply is None

    def remaining_s(self) -> float | None:
        """Its caller does not say how long it waits."""
        return None

    def answer(self, result: Any = None) -> None:
        assert self.reply is None, "a request is answered once"
        if isinstance(result, tuple):
            result, batches = result
            self.batches = bytes(batches)
        self.reply = decode_reply(result)

    def answer_in_pieces(self, first: bytes, pieces: Sequence[bytes]) -> None:
        self.answer((first, b"".join(pieces)))

    def fail(self, error: BaseException) -> None:
        assert self.reply is None, "a request is answered once"
        if not isinstance(error, WireError):
            raise error
        self.reply = Refused(error.code, error.message)

    def send(self, handlers: Handlers) -> SimulatedRequest:
        """Let a shard have it. The answer may come later."""
        function = handlers.router.commands[type(self.message).__name__].function
        try:
            result = function(self)  # type: ignore[arg-type]
        except WireError as error:
            self.fail(error)
        else:
            if result is not LATER:
                self.answer(result)
        return self

    def transactions(self) -> list[tuple[int, int, list[bytes]]]:
        """What a `Fetch` brought: (partition, id, batches)."""
        assert isinstance(self.reply, Fetched), self.reply
        found, at = [], 0
        for it in self.reply.transactions:
            batches = []
            for size in it.sizes:
                batches.append(self.batches[at : at + size])
                at += size
            found.append((it.partition, it.id, batches))
        assert at == len(self.batches)
        return found
