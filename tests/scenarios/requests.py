"""Raw requests, below the client: to send one twice, or out of its order, as a network would."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import moebius
from tstreams import protocol
from tstreams.items import pack
from tstreams.protocol import (
    AgentOpened,
    Change,
    Done,
    Fetched,
    ReadPosition,
    SessionOpened,
    StreamInfo,
    decode_reply,
    encode,
)

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage


_AGENT = re.compile(r"agent \d+")


class RawRequests:
    """Sends what it is told to, under the numbers that it is told to use."""

    def __init__(self, address: str, stage: Stage) -> None:
        self._wire = moebius.Client(address)
        self._stage = stage
        self._sessions: dict[str, int] = {}
        self._names: dict[str, int] = {}
        """Agents, by the names that the scenario gave them."""

    def close(self) -> None:
        self._wire.close()

    def session(self, name: str) -> None:
        """Begin a session."""
        reply, _ = self._send(protocol.OpenSession())
        assert isinstance(reply, SessionOpened)
        self._sessions[name] = reply.session

    def request(self, session: str, number: int, kind: str, options: dict[str, str]) -> str:
        """One request of a session, under this number."""
        options = dict(options)
        name = options.pop("as", "")
        acked = int(options.pop("acked", "0"))
        items = options.pop("items", None)
        message_type = getattr(protocol, kind)
        fields = {key: self._value(key, text) for key, text in options.items()}
        message: Change = message_type(self._sessions[session], number, acked, **fields)
        batch = [] if items is None else [pack([it.encode() for it in items.split(",")])]
        reply, _ = self._send(message, *batch)
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
                known = {agent: it for it, agent in self._names.items()}
                return f"agent {known.get(reply.agent, 'without a name')} of {reply.stream.name}"
            case StreamInfo():
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
            case "agent" | "transaction":
                return known[text]
        return int(text) if text.isdigit() else text

    def _position(self, text: str) -> ReadPosition:
        agent, partition, transaction = text.split("/")
        return ReadPosition(self._names[agent], int(partition), self._stage.ids[transaction])

    def _send(self, message: Any, *batches: bytes) -> tuple[Any, bytes]:
        command = f"0:{type(message).__name__}"
        parts = self._wire.call_parts(command, (encode(message), *batches))
        reply = decode_reply(parts[0])
        assert not isinstance(reply, Fetched)
        return reply, b"".join(parts[1:])
