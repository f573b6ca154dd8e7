"""What a handler is called with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .messages import Call, Parts, as_bytes

if TYPE_CHECKING:
    from .peer import Peer
    from .server import Server


class Request:
    """One request: its payload, who sent it, and how much time is left for it."""

    __slots__ = ("_call", "client", "expires_at", "parts")

    def __init__(self, client: Peer, call: Call, parts: Parts) -> None:
        self.client = client
        """The client's handle: `id`, `identity`, `send`, `close`, `tags`."""
        self.parts = parts
        """The payload as it came: one buffer per part, large ones as views without a copy."""
        self.expires_at = time.monotonic() + call.deadline_ms / 1000 if call.deadline_ms else None
        """When the caller stops waiting, on the clock of `time.monotonic`; None if it never does."""
        self._call = call

    @property
    def id(self) -> int:
        """The caller's number for this request; 0 if it wants no response."""
        return self._call.id

    @property
    def command(self) -> str:
        """The name it was called by."""
        return self._call.command

    @property
    def payload(self) -> bytes:
        """The payload as one `bytes`."""
        return as_bytes(self.parts)

    @property
    def server(self) -> Server:
        """The server: `request.server.clients.broadcast(...)`."""
        return self.client.server

    @property
    def identity(self) -> Any:
        """What the `authenticate` hook returned for this client."""
        return self.client.identity

    def remaining_s(self) -> float | None:
        """Seconds until the caller gives up; None if it set no deadline."""
        if self.expires_at is None:
            return None
        return max(0.0, self.expires_at - time.monotonic())

    def __repr__(self) -> str:
        return f"<Request {self.id} {self.command!r} from {self.client!r}>"
