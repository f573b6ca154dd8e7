"""Finding a server: by the URLs of some of its front doors (`http://host:7080`), or by the addresses of some of its nodes.

Asked before each attempt to connect: so a client finds its server also after that has moved.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import msgspec

import moebius
from moebius.addresses import parse_address
from moebius.chance import luck

from ..errors import BadRequest, Unavailable
from .config import ClientConfig, Tls

ANSWER_BYTES_MAX = 1024 * 1024
"""What a front door may answer: thousands of nodes fit."""
ANSWER_S = 2.0
"""How long a front door may take, until the next one is asked."""
_SCHEMES = ("http", "https")


class _Node(msgspec.Struct):
    addresses: list[str]


class _Nodes(msgspec.Struct):
    items: list[_Node]


class Locator:
    """What a client can connect to, by what its user has named."""

    def __init__(self, config: ClientConfig) -> None:
        """`BadRequest` if that makes no sense."""
        self.target: str | Callable[[], Awaitable[str]]
        """What to connect to first: an address, or how to find one out."""
        self.address = ""
        """The only address that was named, if it is one."""
        self.seeds: Sequence[str] = ()
        """All that were named, if they are addresses of nodes."""
        addresses = tuple(it.strip() for it in config.url.split(","))
        if addresses[0].lower().startswith(("http://", "https://")):
            self.target = _FrontDoors([_FrontDoor(it, config.tls) for it in addresses]).locate
            self._host, self._scheme = urlsplit(addresses[0]).hostname or "", "tcp"
            return
        self.seeds = addresses
        try:
            first, *_ = [parse_address(it) for it in addresses]
        except moebius.Error as error:
            raise BadRequest(error.message) from None
        self._host, self._scheme = first.host or "localhost", first.transport.value
        if len(addresses) == 1:
            self.target = self.address = addresses[0]
        else:
            self.target = _Round(addresses).locate

    def choose(self, addresses: Sequence[str]) -> str | None:
        """The best address of a node, which has these; None if none can be used from here."""
        return choose(addresses, self._host, self._scheme)


class _Round:
    """Several addresses, of which one is tried after the other."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = itertools.cycle(addresses)

    async def locate(self) -> str:
        """The next one."""
        return next(self._addresses)


class _FrontDoors:
    """One front door, or several of which any will do: the one that answered last is asked first. Of the nodes that it names
    each attempt gets another one, so that none which stands still is tried again and again."""

    def __init__(self, doors: Sequence[_FrontDoor]) -> None:
        self._doors = deque(doors)
        self._attempts = luck.randrange(1 << 16)  # not all clients begin with the same node

    async def locate(self) -> str:
        """The address of a node; `Unavailable` if no front door says any."""
        problem = Unavailable("there is no front door")
        for _ in range(len(self._doors)):
            try:
                async with asyncio.timeout(ANSWER_S):
                    found = await self._doors[0].nodes()
            except TimeoutError:
                problem = Unavailable(f"{self._doors[0].url} does not answer")
            except Unavailable as error:
                problem = error
            else:
                self._attempts += 1
                return found[self._attempts % len(found)]
            self._doors.rotate(-1)
        raise problem


class _FrontDoor:
    def __init__(self, text: str, tls: Tls | ssl.SSLContext | None) -> None:
        self.url = text
        try:
            url = urlsplit(text)
            self._host = url.hostname or ""
            self._secure = url.scheme.lower() == "https"
            self._port = url.port or (443 if self._secure else 80)
        except ValueError as error:
            raise BadRequest(f"{text!r} is no URL: {error}") from None
        if not self._host or url.scheme.lower() not in _SCHEMES or url.query or url.username:
            raise BadRequest(f"{text!r} is not the URL of a front door: http://host:port")
        self._path = url.path.rstrip("/") + "/v1/nodes"
        self._host_header = url.netloc
        self._tls = tls

    async def nodes(self) -> list[str]:
        """Addresses of nodes, one of each; `Unavailable` if the front door does not say."""
        try:
            raw = await self._ask()
            nodes = msgspec.json.decode(_body_of(raw), type=_Nodes)
        except (OSError, ValueError, EOFError, msgspec.MsgspecError) as error:
            raise Unavailable(
                f"{self.url} does not say where the server is: {str(error) or repr(error)}"
            ) from None
        found = [choose(it.addresses, self._host) for it in nodes.items]
        named = [it for it in found if it is not None]
        if not named:
            raise Unavailable(f"{self.url} knows no server with an address that leads there")
        return named

    async def _ask(self) -> bytes:
        context = None
        if self._secure:
            tls = self._tls if self._tls is not None else Tls()
            context = tls if isinstance(tls, ssl.SSLContext) else tls.context()
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        try:
            # 1.0: the end of the connection is the end of the answer, and no proxy sends it in chunks.
            writer.write(
                f"GET {self._path} HTTP/1.0\r\nHost: {self._host_header}\r\n"
                "Accept: application/json\r\n\r\n".encode()
            )
            raw = bytearray()
            while chunk := await reader.read(65536):
                raw += chunk
                if len(raw) > ANSWER_BYTES_MAX:
                    raise ValueError(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
            return bytes(raw)
        finally:
            writer.close()


def _body_of(raw: bytes) -> bytes:
    head, end, body = raw.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].split(b" ")
    if not end or len(status) < 2 or not status[0].startswith(b"HTTP/"):
        raise ValueError("its answer is no HTTP")
    if status[1] != b"200":
        raise ValueError(f"it answers with status {status[1].decode('ascii', 'replace')}")
    return body


def choose(addresses: Sequence[str], host: str, first: str = "tcp") -> str | None:
    """The best address of a node for somebody who reached its front door, or another node, under this host.

    One that stands for all interfaces is reached under that host, too. The scheme that is named comes first, then tcp://.
    """
    local = host == "localhost" or _is(host, "is_loopback")
    for scheme in dict.fromkeys((first, "tcp", "ipc", "zmq+tcp", "zmq+ipc")):
        for address in addresses:
            url = urlsplit(address)
            if url.scheme != scheme or ("ipc" in scheme and not local):
                continue
            if url.hostname and _is(url.hostname, "is_unspecified"):
                inside = f"[{host}]" if ":" in host else host
                return f"{scheme}://{inside}:{url.port}"
            return address
    return None


def _is(host: str, what: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), what))
    except ValueError:
        return False
