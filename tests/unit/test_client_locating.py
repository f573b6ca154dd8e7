"""What a client can be told to connect to."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pytest

import tstreams
from tstreams.client.config import ClientConfig, joined
from tstreams.client.locating import Locator
from tstreams.errors import BadRequest, Unavailable


def test_one_address_is_connected_to_again_and_again() -> None:
    locator = Locator(ClientConfig("tcp://127.0.0.1:7070"))
    assert (locator.target, locator.address) == ("tcp://127.0.0.1:7070",) * 2
    assert locator.seeds == ("tcp://127.0.0.1:7070",)


@pytest.mark.parametrize("url", ["tcp://a:1,tcp://b:2", "tcp://a:1, tcp://b:2"])
def test_of_several_addresses_one_is_tried_after_the_other(url: str) -> None:
    locator = Locator(ClientConfig(url))
    assert locator.address == ""
    assert locator.seeds == ("tcp://a:1", "tcp://b:2")
    target = locator.target
    assert not isinstance(target, str)

    async def tried() -> list[str]:
        return [await target() for _ in range(3)]

    assert asyncio.run(tried()) == ["tcp://a:1", "tcp://b:2", "tcp://a:1"]


class Door:
    """A front door that says the same to everyone."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.asked = 0

    async def __aenter__(self) -> Door:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + self._body)
        await writer.drain()
        writer.close()


def nodes_at(*addresses: str) -> bytes:
    return json.dumps({"items": [{"addresses": [it] if it else []} for it in addresses]}).encode()


def test_of_the_nodes_that_a_front_door_names_each_is_tried() -> None:
    async def tried() -> set[str]:
        async with Door(nodes_at("tcp://10.0.0.1:7", "", "tcp://0.0.0.0:9")) as door:
            target = Locator(ClientConfig(door.url)).target
            assert not isinstance(target, str)
            return {await target() for _ in range(2)}

    assert asyncio.run(tried()) == {"tcp://10.0.0.1:7", "tcp://127.0.0.1:9"}


def test_of_several_front_doors_any_will_do() -> None:
    async def tried() -> None:
        async with Door(b"nonsense") as broken, Door(nodes_at("tcp://10.0.0.1:7")) as door:
            urls = f"http://127.0.0.1:1,{broken.url}, {door.url}"
            target = Locator(ClientConfig(urls)).target
            assert not isinstance(target, str)
            assert [await target() for _ in range(3)] == ["tcp://10.0.0.1:7"] * 3
            assert (broken.asked, door.asked) == (1, 3)  # the one that knows is asked first
            target = Locator(ClientConfig(f"http://127.0.0.1:1,{broken.url}")).target
            assert not isinstance(target, str)
            with pytest.raises(Unavailable, match="does not say where the server is"):
                await target()

    asyncio.run(tried())


def test_addresses_travel_with_the_configuration() -> None:
    config = ClientConfig(joined(["tcp://a:1", "tcp://b:2"]), read="any")
    assert config.url == "tcp://a:1,tcp://b:2"
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    "url",
    [
        "tcp://a:1,",
        "tcp://a:1,http://b:2",
        "http://a:1,tcp://b:2",
        "http://a:1,",
        "tcp://a:1,nonsense",
        "",
        [],
        ["tcp://a:1", 7],
    ],
)
def test_addresses_that_make_no_sense_are_refused_at_once(url: Any) -> None:
    with pytest.raises(BadRequest):
        tstreams.connect(url)


def test_who_answers_readers_is_one_of_two() -> None:
    with pytest.raises(BadRequest, match='"leader" or "any"'):
        ClientConfig("tcp://a:1", read="follower")  # type: ignore[arg-type]


def test_the_scheme_that_was_named_is_preferred() -> None:
    both = ["tcp://0.0.0.0:1", "zmq+tcp://0.0.0.0:2"]
    assert Locator(ClientConfig("zmq+tcp://a:9")).choose(both) == "zmq+tcp://a:2"
    assert Locator(ClientConfig("tcp://a:9")).choose(both) == "tcp://a:1"
    assert Locator(ClientConfig("http://a:9")).choose(both) == "tcp://a:1"
    assert Locator(ClientConfig("inproc://x")).choose([]) is None
