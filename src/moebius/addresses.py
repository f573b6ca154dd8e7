"""Addresses: what a server listens on and a client connects to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from urllib.parse import urlsplit

from .errors import BadRequest


class Transport(Enum):
    """Which transport an address names. The value is the scheme of the URL."""

    TCP = "tcp"
    IPC = "ipc"
    ZMQ_TCP = "zmq+tcp"
    ZMQ_IPC = "zmq+ipc"
    INPROC = "inproc"

    @property
    def is_zmq(self) -> bool:
        """Whether ZeroMQ carries it."""
        return self in (Transport.ZMQ_TCP, Transport.ZMQ_IPC)


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address. `host` and `port` for tcp, `path` for unix sockets and in-process names."""

    transport: Transport
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        where = f"{host}:{self.port}" if self.host else self.path
        return f"{self.transport.value}://{where}"

    def with_port(self, port: int) -> Address:
        """The same address with the port that the system chose for port 0."""
        return replace(self, port=port)

    @property
    def zmq_endpoint(self) -> str:
        """The endpoint as ZeroMQ spells it."""
        return str(self).removeprefix("zmq+")


def parse_address(text: str) -> Address:
    """Read an address such as `tcp://127.0.0.1:7070`; `BadRequest` says what is wrong with it."""
    known = ", ".join(f"{transport.value}://" for transport in Transport)
    try:
        url = urlsplit(text)
        transport = Transport(url.scheme)
    except ValueError:
        raise BadRequest(f"address {text!r} must begin with one of {known}") from None
    if transport in (Transport.TCP, Transport.ZMQ_TCP):
        try:
            host, port = url.hostname, url.port
        except ValueError as error:
            raise BadRequest(f"address {text!r}: {error}") from None
        if not host or port is None or url.path not in ("", "/"):
            raise BadRequest(f"address {text!r} must look like {url.scheme}://host:port")
        return Address(transport, host=host, port=port)
    path = text.partition("://")[2]
    if not path:
        raise BadRequest(f"address {text!r} names no path or name after {url.scheme}://")
    return Address(transport, path=path)
