"""The seam between a transport and what it carries: one small interface each way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import Error
from ..limits import Limits
from ..messages import Buffer, Header, Parts


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is known of a connection when the `authenticate` hook is asked."""

    transport: str
    """Scheme of the address: tcp, ipc, zmq+tcp, zmq+ipc or inproc."""
    address: str
    """Where the peer is, as far as the transport tells."""
    token: str = ""
    """The token of its HELLO."""
    certificate: dict[str, Any] | None = None
    """TLS: the peer's certificate, if it showed one and it was verified."""
    curve_key: bytes | None = None
    """CURVE: the peer's public key, in Z85."""


class Receiver(Protocol):
    """Who owns a link: a server's peer or a client's exchange."""

    def received(self, header: Header, parts: Parts) -> None:
        """A message came."""

    def malformed(self, error: Error) -> None:
        """Something came that is no message: the link is of no use any more."""

    def writable(self) -> None:
        """The link has room again."""

    def lost(self, reason: str) -> None:
        """The link is gone; nothing will come or go any more. Called once."""


class Link(Protocol):
    """One connection. All methods belong to the loop's thread."""

    blocked: bool
    """True while the peer takes too little: hold streams back."""
    seen: bool
    """Whether anything arrived since `touched` was called."""
    unpaced_bytes_max: int | None
    """What a stream without credit may send, where the transport cannot hold it back; else None."""

    def send(self, header: Header, parts: Parts) -> None:
        """Queue a message; messages of one wake-up leave together. Ignored once the link is gone."""

    def send_pieces(self, header: Header, first: Buffer, pieces: Sequence[Buffer]) -> None:
        """The same with two parts, the second of which lies in several buffers. Where the transport can, they
        are not copied together."""

    def send_now(self, header: Header, parts: Parts) -> bool:
        """Send a message at once, if nothing is before it. False: nothing was sent. A client's end takes it
        from any thread."""

    def flush(self) -> None:
        """Let what is queued go now, and not at the end of the loop's turn."""

    def buffered_bytes(self) -> int:
        """Bytes queued that the peer has not taken."""

    def credentials(self, token: str) -> Credentials:
        """What is known of the other side."""

    def touched(self) -> bool:
        """Whether anything arrived since the last call."""

    def is_amid_frame(self) -> bool:
        """Whether part of a message is here, and the rest is not."""

    def overdue(self, now: float, limits: Limits) -> str | None:
        """Why this link should be closed at `now` (a slow sender, a stalled reader), or None."""

    def refuse(self, error: Error) -> None:
        """Tell the peer what it did wrong, and close. `lost` follows."""

    def close(self, reason: str = "") -> None:
        """Send what is queued, then close. `lost` follows."""

    def abort(self, reason: str = "") -> None:
        """Close now and drop what is queued. `lost` follows."""
