"""Raw requests, below the client: to send one twice, or out of its order, as a network would."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import moebius
from tstreams import protocol
from tstreams.items import pack, read
from tstreams.protocol import (
    AgentOpened,
    Brought,
    Change,
    Done,
    Fetched,
    Group,
    ReadPosition,
    SessionOpened,
    StreamInfo,
    decode_reply,
    encode,
)

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage


_SOON_S = 0.3
"""Whoever has no answer by then has to wait."""
_AGENT = re.compile(r"agent \d+")


class RawRequests:
    """Sends what it is told to, under the numbers that it is told to use."""

    def __init__(self, address: str, stage: Stage) -> None:
        self._wire = moebius.Client(address)
        self._stage = stage
        self._sessions: dict[str, tuple[int, int]] = {}
        """Sessions, and the shards that they are in."""
        self._names: dict[str, int] = {}
        """Agents, by the names that the scenario gave them."""
        self._streams: dict[str, StreamInfo] = {}
        self._begun: dict[str, tuple[threading.Thread, list[str]]] = {}

    def close(self) -> None:
        self._wire.close()

    def session(self, name: str, shard: int = 0) -> None:
        """Begin a session."""
        reply, _ = self._send(shard, protocol.OpenSession())
        assert isinstance(reply, SessionOpened)
        self._sessions[name] = (shard, reply.session)

    def settle(self, session: str, group: str) -> None:
        """Give a group up that was prepared in a session."""
        shard, number = self._sessions[session]
        self._send(shard, protocol.Settle(number, self._group(group)))

    def fetch(self, stream: str, partition: int, shard: int) -> str:
        """All that is visible in a partition, without a client."""
        wants = [protocol.Want(partition, 0)]
        fetch = protocol.Fetch(self._streams[stream].id, wants, 2**20)
        _, batches = self._send(shard, fetch)
        found = [bytes(item).decode() for items in read(batches) for item in items]
        return " ".join(found) or "nothing"

    def begin(self, name: str, ask: Callable[[], str]) -> str:
        """Ask in a thread, and say whether there is an answer soon."""
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(ask()))
        self._begun[name] = (thread, answers)
        thread.start()
        thread.join(_SOON_S)
        return answers[0] if answers else "no answer yet"

    def answer(self, name: str) -> str:
        """The answer to what was begun."""
        thread, answers = self._begun.pop(name)
        thread.join(30)
        return answers[0]

    def request(self, session: str, number: int, kind: str, options: dict[str, str]) -> str:
        """One request of a session, under this number."""
        options = dict(options)
        name = options.pop("as", "")
        acked = int(options.pop("acked", "0"))
        items = options.pop("items", None)
        message_type = getattr(protocol, kind)
        fields = {key: self._value(key, text) for key, text in options.items()}
        shard, session_number = self._sessions[session]
        message: Change = message_type(session_number, number, acked, **fields)
        batch = [] if items is None else [pack([it.encode() for it in items.split(",")])]
        reply, _ = self._send(shard, message, *batch)
        match reply:
            case Done(id=0):
                return "done"
            case Done():
                if name:
                    self._stage.ids[name] = reply.id
                return f"done: {reply.id}"
            case AgentOpened():
                if name:
                    self._names[name] = reply.agent
                self._streams[reply.stream.name] = reply.stream
                known = {agent: it for it, agent in self._names.items()}
                return f"agent {known.get(reply.agent, 'without a name')} of {reply.stream.name}"
            case StreamInfo():
                self._streams[reply.name] = reply
                return f"stream {reply.name}"
        raise AssertionError(f"nobody expects a {reply}")

    def named(self, text: str) -> str:
        """Numbers of agents in a text, replaced by their names."""
        known = {f"agent {agent}": f"agent {name}" for name, agent in self._names.items()}
        return _AGENT.sub(lambda found: known.get(found[0], found[0]), text)

    def _value(self, key: str, text: str) -> Any:
        known = self._stage.ids | self._names
        match key:
            case "agents" | "transactions":
                return [known[it] for it in text.split(",") if it]
            case "replace":
                return text.split(",")
            case "positions":
                return [self._position(it) for it in text.split(",")]
            case "agent" | "transaction" | "rank":
                return known[text]
            case "number":
                return self._streams[text].id
            case "others":
                return [int(it) for it in text.split(",")]
            case "brought":
                agent, partition = text.split("/")
                return [Brought(self._names[agent], int(partition))]
            case "group" if "/" in text:
                return self._group(text)
        return int(text) if text.isdigit() else text

    def _position(self, text: str) -> ReadPosition:
        agent, partition, transaction = text.split("/")
        return ReadPosition(self._names[agent], int(partition), self._stage.ids[transaction])

    def _group(self, text: str) -> Group:
        """The group of so and so many of a session."""
        session, number = text.split("/")
        return Group(*self._sessions[session], int(number))

    def _send(
        self, shard: int, message: protocol.Message, *batches: bytes
    ) -> tuple[Any, list[bytes]]:
        """The reply, and the batches that came with it."""
        command = f"{shard}:{type(message).__name__}"
        parts = self._wire.call_parts(command, (encode(message), *batches))
        reply = decode_reply(parts[0])
        if not isinstance(reply, Fetched):
            return reply, []
        data = b"".join(map(bytes, parts[1:]))
        sizes = [size for it in reply.transactions for size in it.sizes]
        ends = list(itertools.accumulate(sizes))
        return reply, [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]
