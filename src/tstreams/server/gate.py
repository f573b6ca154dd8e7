"""The gate: every command of the wire is read here, and asked about here, before anything is done for it.

Who may do what is not decided here. Whoever wants to decide gives an `authorise` hook; without one
nothing is asked, and it costs nothing. What shards say to each other is nobody else's: such commands are
taken with the seal of the cluster only, and the hook is not asked about them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from moebius import Request

from ..errors import Unauthorized
from ..protocol import Message
from .seal import Seal
from .wire import decoder, decoder_with_batch, wire_error

M = TypeVar("M", bound=Message)

Authorise: TypeAlias = Callable[[Any, str, Message], bool]
"""Called with the client's identity (what authentication gave), the command as it came (`0:Instant`) and the
message. Whether the client may do this. It must not block; one that raises lets nobody in."""


class Gate:
    """Makes the functions that read requests, so that none is read without being asked about."""

    def __init__(self, authorise: Authorise | None = None) -> None:
        self._authorise = authorise
        self.seal: Seal | None = None
        """How other shards are known. None: there are none in other processes, and nobody can pretend to be one."""

    def reader(self, kind: type[M], parts: int | None = 1) -> Callable[[Request], M]:
        """Reads requests of this kind: see `wire.decoder`. `Unauthorized` goes to whoever may not ask."""
        read = decoder(kind, parts)
        authorise = self._authorise
        if authorise is None:
            return read

        def read_allowed(request: Request) -> M:
            message = read(request)
            check(authorise, request, message)
            return message

        return read_allowed

    def kin_reader(self, kind: type[M]) -> Callable[[Request], M]:
        """Reads what another shard says: the message, and its seal. `Unauthorized` goes to whoever is none."""
        read = decoder(kind, 2)

        def read_sealed(request: Request) -> M:
            parts = request.parts
            seal = self.seal
            if seal is None or len(parts) != 2 or not seal.fits(request.command, *parts):
                text = f"{request.command} is for the shards of this cluster alone, which know its secret"
                raise wire_error(Unauthorized(text))
            return read(request)

        return read_sealed

    def reader_with_batch(self, kind: type[M]) -> Callable[[Request], tuple[M, int]]:
        """The same for a message that comes with an item batch."""
        read = decoder_with_batch(kind)
        authorise = self._authorise
        if authorise is None:
            return read

        def read_allowed(request: Request) -> tuple[M, int]:
            message, items = read(request)
            check(authorise, request, message)
            return message, items

        return read_allowed


def check(authorise: Authorise, request: Request, message: Message) -> None:
    """Refuse what the hook does not allow."""
    if not authorise(request.identity, request.command, message):
        raise wire_error(
            Unauthorized(
                f"{request.command} is not allowed to this client: ask whoever runs the server"
            )
        )
