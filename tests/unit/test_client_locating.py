"""What a client can be told to connect to."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

import tstreams
from tstreams.client.config import ClientConfig, joined
from tstreams.client.locating import Locator
from tstreams.errors import BadRequest


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


def test_addresses_travel_with_the_configuration() -> None:
    config = ClientConfig(joined(["tcp://a:1", "tcp://b:2"]), read="any")
    assert config.url == "tcp://a:1,tcp://b:2"
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    "url", ["tcp://a:1,", "tcp://a:1,http://b:2", "tcp://a:1,nonsense", "", [], ["tcp://a:1", 7]]
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
