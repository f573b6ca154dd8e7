"""The connection to a server, as the rules see it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import moebius

from ...errors import Error
from ...protocol import Describe, Message, NodeInfo, OpenSession, SessionOpened, encode
from .failures import translated
from .roaming import Roaming
from .routing import ANY, Routing
from .session import Session
from .shards import ShardMap
from .ticket import Steps, Ticket, answer
from .window import Window

if TYPE_CHECKING:
    from moebius.client.pending import Pending, Sink
    from moebius.messages import Parts

    from ..tracing.spans import Tracing
    from .stations import Network, Station


class Wire(Protocol):
    """What sends requests: either client of moebius."""

    def begin(
        self,
        sink: Sink,
        command: str,
        parts: Parts,
        *,
        timeout: float | None = -1,
        repeat: bool = False,
        one_way: bool = False,
        credit: int | None = None,
    ) -> Pending:
        """Send a request and go on; its end comes to the sink."""

    def grant(self, pending: Any, credit_bytes: int) -> None:
        """There is room for more of a streaming response."""

    def cancel(self, pending: Any) -> None:
        """Stop a request; its sink hears no more."""

    def hurry(self) -> None:
        """The node is said to be there: connect now, if there is no connection; on the loop."""

    def go_on(self) -> None:
        """Let what was asked for come in, while nobody waits for it."""

    def withdraw(self, is_wanted: Callable[[str], bool]) -> list[Pending]:
        """Take back requests by their commands, on the loop: they are under way no more."""

    def begin_again(self, pending: Pending) -> None:
        """Send a request that was withdrawn."""


class Link:
    """A server or a cluster and its shards, a session in each of them that is written to, and what is under way."""

    def __init__(
        self,
        wire: Wire,
        timeout_s: float,
        tracing: Tracing | None = None,
        *,
        roams: bool = False,
    ) -> None:
        self._wire = wire
        self.roams = roams
        """Whether readers may be answered by nodes that follow, if they do not say."""
        self.timeout_s = timeout_s
        self.tracing = tracing
        """Makes spans; None if nobody wants them."""
        self.window = Window()
        self.on_leases: Callable[[], None] = lambda: None
        """Called when keepalives may be due sooner than before."""
        self.shards = ShardMap(wire)
        self.titles: dict[int, str] = {}
        """What users call the agents of this client, by their numbers: those are unique over all shards."""
        self._lock = threading.Lock()
        self._sessions: dict[int, Session | Ticket] = {}

    def route(self, network: Network, seed: Station) -> None:
        """There may be several nodes: follow the shards to those that lead them."""
        self.shards.routing = Routing(network, seed, self.session_of)

    def describe(self, timeout_s: float) -> Steps[NodeInfo]:
        """Ask the node what it is: the first thing that is done with a link."""
        node = yield from answer(self.ask(Describe(), timeout_s=timeout_s), NodeInfo)
        self.shards.learn(node)
        return node

    def ask(
        self, message: Message, *, shard: int | None = None, timeout_s: float | None = -1
    ) -> Ticket:
        """Send a request that changes nothing, and may be repeated freely."""
        ticket = Ticket()
        if shard is not None:
            self.ask_leader(ticket, message, shard, timeout_s)
            return ticket
        routing = self.shards.routing
        ticket.wire = wire = self._wire if routing is None else routing.contact()
        name = type(message).__name__
        try:
            ticket.handle = wire.begin(
                ticket, name, (encode(message),), timeout=timeout_s, repeat=True
            )
        except moebius.Error as error:
            raise translated(error) from None
        return ticket

    def ask_leader(
        self, ticket: Ticket, message: Message, shard: int, timeout_s: float | None
    ) -> None:
        """The same of the leader of a shard, for a ticket that is there already."""
        route = self.shards[shard]
        ticket.wire = wire = route.wire if route.reached else self.shards.reach(route)
        command = f"{shard}:{type(message).__name__}"
        try:
            ticket.handle = wire.begin(
                ticket, command, (encode(message),), timeout=timeout_s, repeat=True
            )
        except moebius.Error as error:
            raise translated(error) from None
        if route.wire is not wire:  # it has moved in this moment, and nobody may answer there
            self.shards.follow(route, wire)

    def ask_any(self, message: Message, *, shard: int, wait_s: float) -> Ticket:
        """Send a question that a node which follows may answer. If none is there, or it fails, the leader is asked; for
        that half of the time is kept."""
        wire = self.shards.follower(shard)
        timeout_s = self.timeout_s + wait_s
        if wire is None:
            return self.ask(message, shard=shard, timeout_s=timeout_s)
        ticket = Roaming(self, message, shard, timeout_s)
        ticket.wire = wire
        command = f"{shard}:{ANY}{type(message).__name__}"
        try:
            patience_s = self.timeout_s / 2 + wait_s
            ticket.handle = wire.begin(ticket, command, (encode(message),), timeout=patience_s)
        except moebius.Error as error:
            raise translated(error) from None
        return ticket

    def subscribe(
        self, wire: Wire, sink: Sink, message: Message, *, shard: int, credit: int, kind: str = ""
    ) -> Any:
        """Send a request that is answered again and again, as far as the credit goes. `kind`: `ANY`, if the wire is
        one to a node that follows."""
        command = f"{shard}:{kind}{type(message).__name__}"
        try:
            return wire.begin(sink, command, (encode(message),), timeout=None, credit=credit)
        except moebius.Error as error:
            raise translated(error) from None

    def cancel(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        if not ticket.ended:
            ticket.wire.cancel(ticket.handle)
            ticket.end()

    def close(self) -> None:
        """The connections are about to be closed."""
        if self.shards.routing is not None:
            self.shards.routing.close()

    # Sessions.

    def session(self, shard: int) -> Steps[Session]:
        """The session in a shard; the first who needs it begins it."""
        while True:
            held = self._begin_session(shard)
            if isinstance(held, Session):
                return held
            try:
                opened = yield from answer(held, SessionOpened)
            except Error:
                with self._lock:
                    if self._sessions.get(shard) is held:
                        del self._sessions[shard]
                raise
            with self._lock:
                if self._sessions.get(shard) is held:
                    self._sessions[shard] = Session(self, self.shards[shard], opened.session)
            self.leases_changed()

    def sessions_in(self, shards: Iterable[int]) -> Steps[dict[int, Session]]:
        """The sessions in these shards, by shard; those that are missing are begun side by side."""
        wanted = list(shards)
        for shard in wanted:
            self._begin_session(shard)
        found = {}
        for shard in wanted:
            found[shard] = yield from self.session(shard)
        return found

    def _begin_session(self, shard: int) -> Session | Ticket:
        with self._lock:
            held = self._sessions.get(shard)
            if held is None or (isinstance(held, Session) and held.ended is not None):
                held = self._sessions[shard] = self.ask(OpenSession(), shard=shard)
            return held

    def session_of(self, shard: int) -> Session | None:
        """The session in a shard, if there is one."""
        held = self._sessions.get(shard)
        return held if isinstance(held, Session) else None

    def sessions(self) -> list[Session]:
        """Those that are alive."""
        with self._lock:
            held = [it for it in self._sessions.values() if isinstance(it, Session)]
        return [session for session in held if session.ended is None]

    # Keepalive.

    def leases_changed(self) -> None:
        """A lease may be shorter than those before."""
        self.on_leases()

    def beat_s(self) -> float:
        """How long a driver may wait before it calls `beat` again."""
        return min((session.beat_s() for session in self.sessions()), default=3600.0)

    def beat(self) -> None:
        """Extend the sessions, and the leases of what is open in them."""
        for session in self.sessions():
            session.beat()
