"""How a shard reaches the other shards of its cluster if they are in other processes: over connections of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

import moebius

from ..errors import Error, NotLeader, Unavailable
from ..limits import KIN_ASK_S, KIN_CONNECT_S, KIN_CONNECTIONS_MAX, KIN_HOPS_MAX, KIN_IDLE_S
from ..protocol import AnyReply, HandOver, decode_reply, encode
from .kin import KIN, KinMessage
from .seal import Seal

log = logging.getLogger("tstreams.server")

Locate: TypeAlias = Callable[[int], Sequence[str]]
"""The addresses of whoever leads a shard now; none if nobody is known to."""

_SCHEMES = ("tcp", "ipc", "zmq+tcp", "zmq+ipc", "inproc")
"""By which kind of address a shard is reached, the best first."""
_HERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - where others listen, not where we do
_ANSWERS = frozenset(
    kind.code for kind in Error._classes.values() if kind.code not in ("unauthorized", "timeout")
)
"""What a shard itself refuses with. Anything else was said on the way to it."""


@dataclass(frozen=True, slots=True)
class RemoteKinStatistics:
    """What is open and under way."""

    connections: int
    asking: int
    """Messages whose answers have not come."""


class RemoteKin:
    """Other shards, wherever they are: implements `Kin`.

    There is one connection for each address that is in use. It is made when it is needed, and closed when nobody has
    needed it for `KIN_IDLE_S`, or as soon as it is lost: whoever asks again asks `locate` again. Belongs to one loop.
    """

    def __init__(
        self, locate: Locate, seal: Seal, *, token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        """`token` and `tls` are for servers that want them of all who connect."""
        self._locate = locate
        self._seal = seal
        self._token = token
        self._tls = tls
        self._ways: dict[str, _Way] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def statistics(self) -> RemoteKinStatistics:
        """What is open and under way now."""
        asking = sum(it.asking for it in self._ways.values())
        return RemoteKinStatistics(len(self._ways), asking)

    async def ask_node(self, addresses: Sequence[str], shard: int, message: HandOver) -> AnyReply:
        """The answer of the node that has these addresses, whether it leads the shard or not."""
        command = f"{shard}:{KIN}{type(message).__name__}"
        data = encode(message)
        return await self._ask_at(shard, addresses, command, (data, self._seal.of(command, data)))

    async def ask(self, shard: int, message: KinMessage) -> AnyReply:
        """The answer of another shard, wherever it is led.

        `Unavailable` if nobody is known to lead it, if it does not answer within `KIN_ASK_S`, or if whoever answers does
        not know the secret that we know. Cancelling it leaves open whether it took effect.
        """
        addresses = self._locate(shard)
        command = f"{shard}:{KIN}{type(message).__name__}"
        data = encode(message)
        parts = (data, self._seal.of(command, data))
        try:
            async with asyncio.timeout(KIN_ASK_S):
                for _ in range(KIN_HOPS_MAX):
                    try:
                        return await self._ask_at(shard, addresses, command, parts)
                    except NotLeader as error:
                        if not error.addresses:
                            raise
                        addresses = error.addresses
        except TimeoutError:
            raise Unavailable(f"shard {shard} did not answer within {KIN_ASK_S:g} s") from None
        raise Unavailable(
            f"shard {shard} is sought at {KIN_HOPS_MAX} nodes already, each of which names another one"
        )

    async def close(self) -> None:
        """End all connections; who still waits for an answer gets `Unavailable`."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for address in list(self._ways):
            self._drop(self._ways[address])
        await asyncio.gather(*self._closing)

    # Inside.

    async def _ask_at(
        self, shard: int, addresses: Sequence[str], command: str, parts: tuple[bytes, bytes]
    ) -> AnyReply:
        """Ask a node that has these addresses, of which not all may lead there from here."""
        if not addresses:
            raise Unavailable(f"nobody is known to lead shard {shard}")
        failed: Unavailable | None = None
        for address in sorted(map(_from_here, addresses), key=_rank):
            way = self._way_to(address)
            try:
                return await way.call(command, parts)
            except _NotReached as error:
                failed = error
        assert failed is not None
        raise failed

    def _way_to(self, address: str) -> _Way:
        way = self._ways.get(address)
        if way is None:
            if self._closed:
                raise Unavailable("this server is stopping")
            if len(self._ways) >= KIN_CONNECTIONS_MAX:
                self._make_room()
            way = self._ways[address] = _Way(address, self._token, self._tls, self._drop)
            if self._sweep is None:
                self._sweep_later()
        return way

    def _make_room(self) -> None:
        unused = [way for way in self._ways.values() if not way.asking]
        if not unused:
            raise Unavailable(f"{KIN_CONNECTIONS_MAX} connections to other shards are in use")
        self._drop(min(unused, key=lambda way: way.used_at))

    def _drop(self, way: _Way) -> None:
        """Nobody uses this connection any more."""
        if self._ways.get(way.address) is way:
            del self._ways[way.address]
            task = asyncio.get_running_loop().create_task(way.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(KIN_IDLE_S / 2, self._close_idle)

    def _close_idle(self) -> None:
        before = asyncio.get_running_loop().time() - KIN_IDLE_S
        for way in list(self._ways.values()):
            if not way.asking and way.used_at < before:
                self._drop(way)
        self._sweep = None
        if self._ways:
            self._sweep_later()


class _NotReached(Unavailable):
    """There is nobody at this address, or somebody who is not of our cluster: nothing was done."""


class _Way:
    """One connection to a node, which several may use at a time."""

    def __init__(
        self,
        address: str,
        token: str,
        tls: ssl.SSLContext | None,
        drop: Callable[[_Way], None],
    ) -> None:
        self.address = address
        self.asking = 0
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self.used_at = self._loop.time()
        self._client = moebius.aio.connect(
            address,
            token=token,
            name="kin",
            tls=tls,
            on_state=self._on_state,
        )
        self._opened: asyncio.Task[object] | None = None

    async def call(self, command: str, parts: tuple[bytes, bytes]) -> AnyReply:
        """The answer to a request; `_NotReached` if it was not sent, or nobody there knows us."""
        self.asking += 1
        try:
            await self._open()
            return decode_reply(await self._client.call(command, parts, timeout=KIN_ASK_S))
        except moebius.Error as error:
            raise self._in_words(error) from None
        finally:
            self.asking -= 1
            self.used_at = self._loop.time()

    async def close(self) -> None:
        """End the connection."""
        if self._opened is not None:
            self._opened.cancel()
            with contextlib.suppress(asyncio.CancelledError, moebius.Error):
                await self._opened
        await self._client.close()

    async def _open(self) -> None:
        """Wait until it is connected; all who come first wait for the same attempt."""
        if self._opened is None:
            self._opened = self._loop.create_task(self._client.open(KIN_CONNECT_S))
        if self._opened.done() and not self._opened.cancelled() and not self._opened.exception():
            return
        try:
            await asyncio.shield(self._opened)
        except moebius.Error as error:
            self._drop(self)
            raise _NotReached(f"{self.address} cannot be reached: {error}") from None
        except asyncio.CancelledError:
            if not self._opened.cancelled():
                raise  # it is us who are cancelled, not the attempt
            raise _NotReached(f"the connection to {self.address} was closed") from None

    def _on_state(self, state: moebius.State) -> None:
        if state is moebius.State.RECONNECTING:
            self._drop(self)  # who asks next finds out first where the shard is now

    def _in_words(self, error: moebius.Error) -> Error:
        if error.code in _ANSWERS:
            return Error.from_wire(error.code, error.message)
        if error.code in (moebius.UnknownCommand.code, moebius.Unauthorized.code):
            text = f"{self.address} does not take us for a shard of its cluster: {error}"
            log.warning(text)
            return _NotReached(text)
        if error.code == moebius.Disconnected.code:
            self._drop(self)
        return Unavailable(f"{self.address} did not answer: {error}")


def _from_here(address: str) -> str:
    """How an address is reached from this machine, if it means all of its addresses."""
    url = urlsplit(address)
    if url.hostname in _HERE:
        return f"{url.scheme}://{_HERE[url.hostname]}:{url.port}"
    return address


def _rank(address: str) -> int:
    scheme = address.partition("://")[0]
    return _SCHEMES.index(scheme) if scheme in _SCHEMES else len(_SCHEMES)
