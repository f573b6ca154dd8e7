"""A session: the frame in which the server recognises requests that are sent again."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import moebius

from ...errors import Error, InvalidState
from ...limits import KEEPALIVE_S_MAX
from ...protocol import Change, Commit, Group, KeepAlive, encode
from .failures import agent_in, is_session_end, translated
from .ticket import Ticket

if TYPE_CHECKING:
    from moebius.client.pending import Sink
    from moebius.messages import Buffer

    from .link import Link
    from .shards import Route


class Counted(Protocol):
    """A sink for the answer to a change. When it ends it calls `session.answered(number, size, error)`."""

    session: Session | None
    number: int
    size: int


class Session:
    """Numbers the changes of a client in one shard.

    Invariants: numbers leave in their order, because each is given out and sent under one lock. Every
    request up to `acked` has been answered or given up; `_answered` holds those beyond it.
    """

    def __init__(self, link: Link, route: Route, session_id: int) -> None:
        self.link = link
        self.route = route
        self.shard = route.shard
        self.id = session_id
        self.acked = 0
        self.ended: Error | None = None
        """Why it can be used no more."""
        self._sequence = 0
        self._answered: set[int] = set()
        self.sending = threading.RLock()
        """Held while a change is numbered and sent, and while what was not answered moves to another node: then what
        ends may lead to the next change."""
        self._acked_lock = threading.Lock()
        self._commands: dict[type, str] = {}
        self._leases_ms: Counter[int] = Counter()
        self._beat: Ticket | None = None
        self._groups = itertools.count(1)

    def named(self, error: Error) -> Error:
        """An error of the server, with what users call the agent in the place of its number."""
        number = agent_in(error)
        title = None if number is None else self.link.titles.get(number)
        if title is None:
            return error
        return type(error)(error.message.replace(f"agent {number}", title, 1))

    def name_group(self) -> Group:
        """A name for a group that spans shards, and that this session's shard will decide on."""
        return Group(self.shard, self.id, next(self._groups))

    def start(self, kind: type[Change], *fields: Any, timeout_s: float | None = -1) -> Ticket:
        """Send a change without a batch. It is small, and waits for no one."""
        ticket = Ticket()
        self.link.window.push_in(0)
        self.send(ticket, kind, fields, timeout_s=timeout_s)
        return ticket

    def start_batch(self, kind: type[Change], *fields: Any, batch: Buffer) -> Ticket:
        """Send a change with a batch, for which the caller has taken room in the window."""
        ticket = Ticket()
        self.send(ticket, kind, fields, (batch,))
        return ticket

    def start_commit(
        self, *fields: Any, batches: tuple[Buffer, ...], kind: type[Change] = Commit
    ) -> Ticket:
        """Send a commit, or a part of one, with the batches that it brings, for which the caller has taken
        room."""
        ticket = Ticket()
        self.send(ticket, kind, fields, batches)
        return ticket

    def send(
        self,
        sink: Any,
        kind: type[Change],
        fields: tuple[Any, ...],
        batches: tuple[Buffer, ...] = (),
        *,
        timeout_s: float | None = -1,
        one_way: bool = False,
    ) -> None:
        """Number a change and send it. `sink` is `Counted`, and room in the window has been taken."""
        sink.size = size = sum(map(len, batches)) if batches else 0
        if self.ended is not None:
            self.link.window.leave(size)
            raise InvalidState(self.ended.message)
        command = self._commands.get(kind) or self._command(kind)
        with self.sending:
            self._sequence = number = self._sequence + 1
            sink.session = self
            sink.number = number
            try:
                message = encode(kind(self.id, number, self.acked, *fields))
                self.route.wire.begin(
                    sink,
                    command,
                    (message, *batches),
                    timeout=timeout_s,
                    repeat=not one_way,
                    one_way=one_way,
                )
            except moebius.Error as error:
                self._ack(number)
                self.link.window.leave(size)
                raise translated(error) from None
            except BaseException:
                self._ack(number)  # a gap that is never closed would make the server keep answers
                raise

    def resume(self) -> None:
        """Before what was not answered is sent to a node again: say which numbers are not among that, because they
        were answered or given up. That node may know less of them than we do."""
        with suppress(Error):  # the client is being closed
            self.link.ask(KeepAlive(self.id, self.acked), shard=self.shard)

    def answered(self, number: int, size: int, error: Error | None) -> None:
        """A request has its answer, or was given up."""
        self._ack(number)
        self.link.window.leave(size)
        if error is not None and is_session_end(error):
            self.ended = error

    def _ack(self, number: int) -> None:
        with self._acked_lock:
            if number == self.acked + 1:
                self.acked = number
                answered = self._answered
                while answered and self.acked + 1 in answered:
                    self.acked += 1
                    answered.remove(self.acked)
            elif number > self.acked:
                self._answered.add(number)

    def _command(self, kind: type) -> str:
        command = self._commands[kind] = f"{self.shard}:{kind.__name__}"
        return command

    # Leases.

    def hold_lease(self, lease_ms: int) -> None:
        """An agent keeps transactions open under this lease."""
        with self._acked_lock:
            self._leases_ms[lease_ms] += 1
        self.link.leases_changed()

    def drop_lease(self, lease_ms: int) -> None:
        """That agent is gone."""
        with self._acked_lock:
            self._leases_ms[lease_ms] -= 1
            if self._leases_ms[lease_ms] <= 0:
                del self._leases_ms[lease_ms]

    def beat_s(self) -> float:
        """How often to say that we are here: three times in the shortest lease."""
        with self._acked_lock:
            shortest_ms = min(self._leases_ms, default=None)
        if shortest_ms is None:
            return KEEPALIVE_S_MAX
        return min(shortest_ms / 3000, KEEPALIVE_S_MAX)

    def beat(self) -> None:
        """Say that we are here, unless the last time has not been answered yet."""
        if self.ended is not None or (self._beat is not None and not self._beat.ended):
            return
        message = KeepAlive(self.id, self.acked)
        self._beat = self.link.ask(message, shard=self.shard)
        self._beat.add_callback(self._beaten)

    def _beaten(self, ticket: Ticket) -> None:
        if type(ticket.error) is InvalidState and is_session_end(ticket.error):
            self.ended = ticket.error


if TYPE_CHECKING:

    def _a_ticket_is_a_sink(ticket: Ticket) -> tuple[Counted, Sink]:
        return ticket, ticket
