"""Every command of the wire passes through the gate: who is not allowed gets nothing, of none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import moebius
from tstreams import items, protocol
from tstreams.config import Config
from tstreams.errors import BadRequest
from tstreams.protocol import Message
from tstreams.server import Node
from tstreams.server.kin import KIN, KinMessage

MESSAGES = {
    kind.__name__: kind
    for union in (protocol.ChangeRequest, protocol.ReadRequest, protocol.InspectRequest)
    for kind in get_args(union)
} | {
    kind.__name__: kind
    for kind in (
        protocol.OpenSession,
        protocol.KeepAlive,
        protocol.Settle,
        protocol.Subscribe,
        protocol.Describe,
        protocol.Measure,
        protocol.GetConfig,
        protocol.DescribeCluster,
        protocol.CheckCluster,
        protocol.Intend,
    )
}
"""What may be asked of a server."""

KIN_COMMANDS = {f"0:{KIN}{kind.__name__}" for kind in get_args(KinMessage)}
"""What only other shards may ask: whoever is allowed everything is not allowed that."""

BATCH = items.pack([b"item"])


class Hook:
    """Remembers what it was asked, and says what it was told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, str, Message]] = []
        self.says: bool | Exception = False

    def __call__(self, identity: Any, command: str, message: Message) -> bool:
        self.asked.append((identity, command, message))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def hook() -> Hook:
    return Hook()


@pytest.fixture
def node(tmp_path: Path, hook: Hook) -> Iterator[Node]:
    config = Config(data=tmp_path, token="secret")
    with Node(config, ["tcp://127.0.0.1:0"], authorise=hook).in_thread() as node:
        yield node


def filled(kind: type[Message]) -> Message:
    """A message that can be read, with something in each field."""
    needed = [it.type for it in msgspec.structs.fields(kind) if it.required]
    group = protocol.Group(1, 1, 1)
    values: tuple[object, ...] = (1, b"", "producer", False, [], group)
    return kind(*(next(it for it in values if _fits(it, hint)) for hint in needed))


def _fits(value: object, hint: Any) -> bool:
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert(value, hint)
        return True
    return False


def parts_of(name: str) -> tuple[bytes, ...]:
    message = protocol.encode(filled(MESSAGES[name]))
    return (message, BATCH) if name in ("SendItems", "Instant") else (message,)


def commands_of(node: Node) -> list[str]:
    assert node._server is not None
    return [it for it in node._server.router.commands if it not in KIN_COMMANDS]


def test_every_command_is_known_here(node: Node) -> None:
    """A new one has to be added above, so that the tests below try it."""
    names = {command.rpartition(":")[2] for command in commands_of(node)}
    assert names == set(MESSAGES)


def test_who_is_denied_is_denied_every_command(node: Node, hook: Hook) -> None:
    before = node.shards[0].log.end
    with moebius.connect(node.addresses[0], token="secret") as client:
        for command in commands_of(node):
            name = command.rpartition(":")[2]
            with pytest.raises(moebius.Error, match="is not allowed to this client") as refused:
                list(client.stream(command, parts_of(name), timeout=20))
            assert refused.value.code == "unauthorized"
            identity, asked, message = hook.asked[-1]
            assert (identity, asked) == ("token", command)
            assert message == filled(MESSAGES[name])
    assert len(hook.asked) == len(commands_of(node))
    assert node.shards[0].log.end == before, "nothing was done"
    assert not node.shards[0].core.state.sessions


@pytest.mark.parametrize("command", sorted(KIN_COMMANDS))
def test_what_shards_tell_each_other_nobody_else_may(node: Node, hook: Hook, command: str) -> None:
    hook.says = True
    message = protocol.encode(protocol.Settle(0, protocol.Group(1, 1, 1), True))
    with moebius.connect(node.addresses[0], token="secret") as client:
        for parts in ((), (message,), (message, b""), (message, b"x" * 32)):
            with pytest.raises(moebius.Unauthorized, match="for the shards of this cluster alone"):
                client.call(command, parts, timeout=20)


def test_who_is_allowed_is_asked_about_and_served(node: Node, hook: Hook) -> None:
    hook.says = True
    with moebius.connect(node.addresses[0], token="secret") as client:
        reply = client.call("0:OpenSession", protocol.encode(protocol.OpenSession()), timeout=20)
        assert isinstance(protocol.decode_reply(reply), protocol.SessionOpened)
    assert [command for _, command, _ in hook.asked] == ["0:OpenSession"]


def test_a_hook_that_fails_lets_nobody_in(node: Node, hook: Hook) -> None:
    hook.says = ValueError("a mistake")
    with (
        moebius.connect(node.addresses[0], token="secret") as client,
        pytest.raises(moebius.Error, match="a mistake"),
    ):
        client.call("Describe", protocol.encode(protocol.Describe()), timeout=20)


def test_addresses_for_others_are_refused_also_if_they_are_given_to_the_node(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadRequest, match=r"tcp://0\.0\.0\.0:0 can be reached from other machines"):
        Node(tmp_path / "data", ["tcp://0.0.0.0:0"])
    assert not (tmp_path / "data").exists()
    Node(Config(data=tmp_path, insecure=True), ["tcp://0.0.0.0:0"])
