"""How shards reach each other over connections: where they look, whom they believe, and what they give up on."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop

import moebius
from tests.integration.certificates import make_certificate
from tests.integration.tstreams.servers import server_of
from tstreams import limits
from tstreams.config import Config
from tstreams.errors import BadRequest, Error, NotFound, NotLeader, Unavailable
from tstreams.protocol import (
    AskDecision,
    Decision,
    Done,
    GetStream,
    Group,
    Settle,
    StreamInfo,
    TellStream,
    encode,
)
from tstreams.server import Node, remote_kin
from tstreams.server.kin import KinMessage
from tstreams.server.remote_kin import RemoteKin
from tstreams.server.seal import Seal
from tstreams.server.wire import wire_error
from tstreams.sharding import home_of

from .raw import SHARDS, Raw

SECRET = secrets.token_hex(32)
SEAL = Seal(SECRET)
HOME = home_of("clicks", SHARDS)
OTHER = (HOME + 1) % SHARDS
NOBODY = AskDecision(Group(OTHER, 1, 1), "expired")

T = TypeVar("T")
Do = Callable[[RemoteKin], Awaitable[T]]


def asking(addresses: Sequence[str], do: Do[T], **options: object) -> T:
    """Do something with the other shards, all of which are at these addresses."""
    return asking_where(lambda _: addresses, do, **options)


def asking_where(locate: remote_kin.Locate, do: Do[T], **options: object) -> T:
    async def main() -> T:
        kin = RemoteKin(locate, **({"seal": SEAL} | options))  # type: ignore[arg-type]
        try:
            return await do(kin)
        finally:
            await kin.close()

    return uvloop.run(main())


def ask(addresses: Sequence[str], shard: int, message: KinMessage, **options: object) -> object:
    return asking(addresses, lambda kin: kin.ask(shard, message), **options)


@contextlib.contextmanager
def serving(
    data: Path, address: str, config: Config | None = None, seal: Seal | None = SEAL
) -> Iterator[Node]:
    node = Node(config or data, [address], shards=SHARDS)
    node._gate.seal = seal
    with node.in_thread():
        yield node


@pytest.fixture(params=["tcp://127.0.0.1:0", "ipc://{}/s", "zmq+tcp://127.0.0.1:0"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    with serving(tmp_path / "data", request.param.format(tmp_path)) as node:
        yield node


def test_shards_ask_and_tell(node: Node) -> None:
    with Raw(node.addresses[0]) as client:
        made = client.create("clicks", SHARDS)

    async def do(kin: RemoteKin) -> None:
        found = await kin.ask(HOME, GetStream("clicks"))
        assert isinstance(found, StreamInfo)
        assert found == made
        assert await kin.ask(OTHER, TellStream(made.id, made)) == Done()
        assert node.shards[OTHER].core.state.stream(made.id).name == "clicks"
        assert await kin.ask(HOME, AskDecision(Group(HOME, 1, 7), "expired")) == Decision(False)
        assert await kin.ask(OTHER, Settle(0, Group(HOME, 1, 7), False)) == Done()
        assert kin.statistics() == remote_kin.RemoteKinStatistics(connections=1, asking=0)

    asking(node.addresses, do)


def test_what_a_shard_refuses_is_refused_with_its_error(node: Node) -> None:
    with pytest.raises(NotFound, match="clicks"):
        ask(node.addresses, HOME, GetStream("clicks"))
    with pytest.raises(BadRequest, match="home"):
        ask(node.addresses, OTHER, GetStream("clicks"))


def test_many_ask_at_the_same_time_over_one_connection(node: Node) -> None:
    async def do(kin: RemoteKin) -> int:
        asks = [kin.ask(it % SHARDS, Settle(0, Group(HOME, 1, it), False)) for it in range(2000)]
        assert set(await asyncio.gather(*asks)) == {Done()}
        return kin.statistics().connections

    assert asking(node.addresses, do) == 1


# Whom they believe.


@pytest.fixture
def tcp(tmp_path: Path) -> Iterator[Node]:
    with serving(tmp_path / "data", "tcp://127.0.0.1:0") as node:
        yield node


@pytest.mark.parametrize("kind", [GetStream, TellStream, Settle, AskDecision])
def test_clients_cannot_pretend_to_be_a_shard(tcp: Node, kind: type[KinMessage]) -> None:
    messages: dict[type, KinMessage] = {
        GetStream: GetStream("clicks"),
        TellStream: TellStream(1, None),
        Settle: Settle(0, Group(HOME, 1, 1), True),
        AskDecision: NOBODY,
    }
    command, message = f"{HOME}:kin:{kind.__name__}", encode(messages[kind])
    of_another = Seal(secrets.token_hex(32)).of(command, message)
    of_another_shard = SEAL.of(f"{OTHER}:kin:{kind.__name__}", message)
    of_another_message = SEAL.of(command, message + b"x")
    before = tcp.shards[HOME].log.end
    with moebius.connect(tcp.addresses[0]) as client:
        for seal in (of_another, of_another_shard, of_another_message, b"", SECRET.encode()):
            with pytest.raises(moebius.Unauthorized, match="for the shards of this cluster alone"):
                client.call(command, (message, seal))
        for parts in ((message,), (), (message, b"", SEAL.of(command, message))):
            with pytest.raises(moebius.Unauthorized):
                client.call(command, parts)
        with pytest.raises(moebius.BadRequest, match="cannot be read"):
            client.call(command, (b"nonsense", SEAL.of(command, b"nonsense")))
    assert tcp.shards[HOME].log.end == before


def test_a_server_without_a_secret_takes_nobody_for_a_shard(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "data", "tcp://127.0.0.1:0", seal=None) as node,
        pytest.raises(Unavailable, match="does not take us for a shard of its cluster"),
    ):
        ask(node.addresses, OTHER, NOBODY)


def test_servers_of_another_cluster_are_not_believed(
    tcp: Node, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Unavailable, match="does not take us for a shard of its cluster"):
        ask(tcp.addresses, OTHER, NOBODY, seal=Seal(secrets.token_hex(32)))
    assert "does not take us for a shard" in caplog.text, "operators have to see it"


def test_with_token_and_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    config = Config(
        data=tmp_path / "data", token="right", tls_certificate=Path(certificate), tls_key=Path(key)
    )
    context = ssl.create_default_context(cafile=certificate)
    with serving(tmp_path, "tcp://127.0.0.1:0", config) as node:
        reply = ask(node.addresses, OTHER, NOBODY, token="right", tls=context)
        assert reply == Decision(False)
        with pytest.raises(Unavailable, match="cannot be reached"):
            ask(node.addresses, OTHER, NOBODY, token="wrong", tls=context)
        with pytest.raises(Unavailable, match="cannot be reached"):
            ask(node.addresses, OTHER, NOBODY, token="right", tls=ssl.create_default_context())


def test_a_secret_has_its_length() -> None:
    with pytest.raises(ValueError, match="a secret has 32 bytes, not 2"):
        Seal("abcd")


# Where they look.


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def test_nobody_is_known_to_lead() -> None:
    with pytest.raises(Unavailable, match="nobody is known to lead shard 1"):
        ask([], 1, NOBODY)


def test_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_kin, "KIN_CONNECT_S", 0.2)
    address = free_address()
    with pytest.raises(Unavailable, match=f"{address} cannot be reached"):
        ask([address], 1, NOBODY)


def test_of_several_addresses_one_is_enough(tcp: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_kin, "KIN_CONNECT_S", 0.2)
    addresses = [f"zmq+{free_address()}", "ipc:///nowhere/at/all", free_address(), *tcp.addresses]
    assert ask(addresses, OTHER, NOBODY) == Decision(False)
    assert ask(addresses[::-1], OTHER, NOBODY) == Decision(False)


def test_an_address_of_all_interfaces_is_reached_here(tmp_path: Path) -> None:
    config = Config(data=tmp_path, insecure=True)
    with serving(tmp_path, "tcp://0.0.0.0:0", config) as node:
        assert node.addresses[0].startswith("tcp://0.0.0.0:")
        assert ask(node.addresses, OTHER, NOBODY) == Decision(False)


class Elsewhere:
    """A node that does not lead, and names another one."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.asked = 0
        self.addresses = addresses
        router = moebius.Router()

        @router.command(f"{OTHER}:kin:AskDecision")
        def refuse(request: moebius.Request) -> None:
            self.asked += 1
            raise wire_error(NotLeader(OTHER, 3, self.addresses))

        self.server = moebius.Server(router, "tcp://127.0.0.1:0")


def test_who_leads_is_followed(tcp: Node) -> None:
    elsewhere = Elsewhere(tcp.addresses)
    with elsewhere.server.in_thread() as server:
        assert ask(server.addresses, OTHER, NOBODY) == Decision(False)
    assert elsewhere.asked == 1


def test_nodes_that_name_each_other_are_not_asked_for_ever() -> None:
    elsewhere = Elsewhere([])
    with elsewhere.server.in_thread() as server:
        with pytest.raises(NotLeader):
            ask(server.addresses, OTHER, NOBODY)
        elsewhere.addresses = server.addresses
        with pytest.raises(Unavailable, match="each of which names another one"):
            ask(server.addresses, OTHER, NOBODY)
    assert elsewhere.asked == 1 + limits.KIN_HOPS_MAX


# What they give up on.


class Silent:
    """A server that takes everything and says nothing until it is told to."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self.requests: list[moebius.Request] = []
        router = moebius.Router()

        @router.command(f"{OTHER}:kin:AskDecision", strategy=moebius.Strategy.QUEUE)
        def keep(request: moebius.Request) -> object:
            self.requests.append(request)
            self.came.release()
            return moebius.LATER

        self.server = moebius.Server(
            router, "tcp://127.0.0.1:0", limits=moebius.Limits(stop_grace_s=0)
        )

    async def has_one(self) -> None:
        """Wait until one more was asked."""
        assert await asyncio.to_thread(self.came.acquire, timeout=20)


async def until_unconnected(kin: RemoteKin) -> None:
    async with asyncio.timeout(20):
        while kin.statistics().connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_who_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_kin, "KIN_ASK_S", 0.2)
    silent = Silent()
    with (
        silent.server.in_thread() as server,
        pytest.raises(Unavailable, match="did not answer"),
    ):
        ask(server.addresses, OTHER, NOBODY)
    assert silent.requests[0].expires_at is not None, "the other side knows that we do not wait"


def test_a_connection_that_breaks_is_made_anew_when_it_is_needed(tmp_path: Path) -> None:
    """Each time it is looked up anew where the shard is."""
    silent = Silent()
    asked: list[int] = []

    async def do(kin: RemoteKin) -> None:
        first = asyncio.ensure_future(kin.ask(OTHER, NOBODY))
        await silent.has_one()
        stack.close()
        with pytest.raises(Unavailable, match="did not answer"):
            await first
        await until_unconnected(kin)
        with serving(tmp_path / "data", addresses[0]):
            assert await kin.ask(OTHER, NOBODY) == Decision(False)

    def locate(shard: int) -> Sequence[str]:
        asked.append(shard)
        return addresses

    with contextlib.ExitStack() as stack:
        addresses = stack.enter_context(silent.server.in_thread()).addresses
        asking_where(locate, do)
    assert asked == [OTHER, OTHER]


def test_a_server_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Nobody there takes us for a shard; that it answers is enough."""
    server = server_of(tmp_path / "data", SHARDS)

    async def do(kin: RemoteKin) -> None:
        for _ in range(2):
            with pytest.raises(Unavailable, match="does not take us for a shard"):
                await kin.ask(OTHER, NOBODY)
            await asyncio.to_thread(server.kill)
            with pytest.raises(Unavailable):
                await kin.ask(OTHER, NOBODY)
            await asyncio.to_thread(server.start)

    server.start()
    with contextlib.closing(server), pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_kin, "KIN_CONNECT_S", 0.5)
        asking([server.address], do)


def test_who_is_cancelled_does_not_take_others_along(tcp: Node) -> None:
    async def do(kin: RemoteKin) -> None:
        asks = [asyncio.ensure_future(kin.ask(OTHER, NOBODY)) for _ in range(3)]
        await asyncio.sleep(0)
        asks[0].cancel()
        answers = await asyncio.gather(*asks, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == [Decision(False)] * 2

    asking(tcp.addresses, do)


def test_who_waits_when_it_is_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent()

    async def do(kin: RemoteKin) -> None:
        connecting = asyncio.ensure_future(kin.ask(1, NOBODY))
        waiting = asyncio.ensure_future(kin.ask(OTHER, NOBODY))
        await silent.has_one()
        await kin.close()
        for it in (connecting, waiting):
            with pytest.raises(Unavailable):
                await it
        with pytest.raises(Unavailable, match="is stopping"):
            await kin.ask(OTHER, NOBODY)

    with silent.server.in_thread() as server:
        nowhere = [free_address()]
        asking_where(lambda shard: server.addresses if shard == OTHER else nowhere, do)


def test_connections_that_nobody_uses_are_closed(
    tcp: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_kin, "KIN_IDLE_S", 0.05)

    async def do(kin: RemoteKin) -> None:
        await kin.ask(OTHER, NOBODY)
        assert kin.statistics().connections == 1
        await until_unconnected(kin)
        assert await kin.ask(OTHER, NOBODY) == Decision(False)

    asking(tcp.addresses, do)


def test_there_are_only_so_many_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are in use stay; of the others the one that was used first goes."""
    monkeypatch.setattr(remote_kin, "KIN_CONNECTIONS_MAX", 2)
    silent = Silent()

    async def do(kin: RemoteKin) -> None:
        busy = asyncio.ensure_future(kin.ask(OTHER, NOBODY))
        await silent.has_one()
        for it in (0, 1, 0):
            where[0] = nodes[it].addresses
            await kin.ask(HOME, AskDecision(Group(HOME, 1, 1), "expired"))
            assert kin.statistics() == remote_kin.RemoteKinStatistics(2, 1)
        silent.server.call_soon(silent.requests[0].answer, encode(Decision(True)))
        assert await busy == Decision(True)

    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(serving(tmp_path / str(it), "tcp://127.0.0.1:0")) for it in range(2)
        ]
        where = [stack.enter_context(silent.server.in_thread()).addresses]
        asking_where(lambda _: where[0], do)


def test_if_all_connections_are_in_use_nobody_else_gets_one(
    tcp: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_kin, "KIN_CONNECTIONS_MAX", 1)
    silent = Silent()

    async def do(kin: RemoteKin) -> None:
        busy = asyncio.ensure_future(kin.ask(OTHER, NOBODY))
        await silent.has_one()
        with pytest.raises(Error, match="1 connections to other shards are in use"):
            await kin.ask(HOME, NOBODY)
        busy.cancel()

    with silent.server.in_thread() as server:
        asking_where(lambda shard: (server if shard == OTHER else tcp).addresses, do)
