"""What a client needs to know to connect. Can be pickled, sent elsewhere, and connected with there."""

from __future__ import annotations

import math
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from moebius import CurveClient

from ..errors import BadRequest
from ..limits import CLIENT_TIMEOUT_S

Read: TypeAlias = Literal["leader", "any"]
"""Who answers readers."""


def check_read(read: str) -> bool:
    """Whether nodes that follow may answer; `BadRequest` if it is neither of the two words."""
    if read not in ("leader", "any"):
        raise BadRequest(f'read is "leader" or "any", not {read!r}')
    return read == "any"


def joined(url: str | Sequence[str]) -> str:
    """Addresses as one text: with commas between."""
    if isinstance(url, str) or not isinstance(url, Sequence):
        return url
    if not url or not all(isinstance(it, str) for it in url):
        raise BadRequest(f"addresses are texts such as tcp://127.0.0.1:7070, not {url!r}")
    return ",".join(url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to trust a server, and what to show it. Without a `ca_file` the system's authorities count."""

    ca_file: str | None = None
    """The certificate of the authority that signed the server's."""
    cert_file: str | None = None
    """Our own certificate, if the server wants one."""
    key_file: str | None = None
    """The key of our own certificate, if it is not in the same file."""
    check_hostname: bool = True
    """Whether the server's certificate must be for the host in the address."""

    def context(self) -> ssl.SSLContext:
        """What the connection is made with."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.check_hostname
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where to connect, and how."""

    url: str
    """The address of a node, or the URL of a front door; or several of either, with commas between: any will do."""
    token: str = field(default="", repr=False)
    timeout: float = CLIENT_TIMEOUT_S
    tls: Tls | ssl.SSLContext | None = None
    curve: CurveClient | None = field(default=None, repr=False)
    tracing: bool | None = None
    """Whether spans are made, with OpenTelemetry. None: as the environment says, in `TSTREAMS_TRACING`."""
    read: Read = "leader"
    """Who answers readers: "leader", or "any" node that has what they ask for."""

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise BadRequest(f"an address is text such as tcp://127.0.0.1:7070, not {self.url!r}")
        if self.tracing is not None and not isinstance(self.tracing, bool):
            raise BadRequest(f"tracing is True, False or None, not {self.tracing!r}")
        check_read(self.read)
        seconds: Any = self.timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise BadRequest(f"a timeout is a number of seconds, not {seconds!r}")
        if not 0 < seconds < math.inf:
            raise BadRequest(f"a timeout is a positive number of seconds, not {seconds!r}")

    def tls_context(self) -> ssl.SSLContext | None:
        """What the connection is made with, if it is encrypted."""
        return self.tls.context() if isinstance(self.tls, Tls) else self.tls

    def __getstate__(self) -> tuple[Any, ...]:
        if isinstance(self.tls, ssl.SSLContext):
            raise TypeError(
                "an ssl.SSLContext cannot be pickled: give `tls` as tstreams.Tls(ca_file=...)"
            )
        return (self.url, self.token, self.timeout, self.tls, self.curve, self.tracing, self.read)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            object.__setattr__(self, name, value)
