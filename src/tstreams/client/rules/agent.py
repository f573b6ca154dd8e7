"""An agent: a name that is held on the server, by a producer or a reader."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from moebius import process

from ...errors import Error, InvalidState, Unavailable
from ...limits import CLIENT_CLOSE_TIMEOUT_S
from ...model import Stream, check_name
from ...protocol import AgentOpened, CloseAgent, Commit, Done, OpenAgent
from .failures import is_session_end
from .link import Link
from .partitioning import chosen_partitions
from .session import Session
from .streams import get_stream, stream_of
from .ticket import Steps, Ticket, answer

log = logging.getLogger("tstreams.client")


class Seat:
    """An agent in one shard: the session that holds its name there, and its number."""

    __slots__ = ("number", "session", "shard")

    def __init__(self, session: Session, number: int) -> None:
        self.session = session
        self.number = number
        self.shard = session.shard


class Agent:
    """A producer's or a reader's name, which it holds in each shard that it has to do with.

    Invariants: `seats` are all of them, each in another shard, that at the home of the stream first.
    `ring[partition % len(ring)]` is the one in the shard of a partition, if that is one of the agent's partitions.
    """

    def __init__(
        self, link: Link, kind: str, name: str, opened: AgentOpened, seats: Sequence[Seat]
    ) -> None:
        self.link = link
        self.kind = kind
        self.name = name
        self.id = opened.agent
        """Its number at home: unique, and higher than that of whoever had the name before."""
        self.stream: Stream = stream_of(opened.stream)
        self.stream_id = opened.stream.id
        self.seats = list(seats)
        by_shard = {seat.shard: seat for seat in seats}
        shards = link.shards.ring_of(self.stream.name, self.stream.partitions)
        self.ring = [by_shard.get(shard, seats[0]) for shard in shards]
        self.title = _title(kind, name, self.stream.name)
        """What errors call it."""
        self.closed = False
        self.in_doubt = False
        """Of a reader: whether nobody knows if the checkpoint of a group has moved it."""
        self._pid = process.pid
        for seat in seats:
            link.titles[seat.number] = self.title

    def check(self) -> None:
        """Refuse to be used after it was closed, or in a process that was forked off."""
        if self.closed or self._pid != process.pid:
            if self._pid != process.pid:
                raise forked(self.title)
            raise InvalidState(f"{self.title} is closed: make a new one")

    @property
    def is_foreign(self) -> bool:
        """Whether this process only inherited it."""
        return self._pid != process.pid

    def seat_of(self, partition: int) -> Seat:
        """The one in the shard of a partition."""
        return self.ring[partition % len(self.ring)]

    def seats_of(self, partitions: Iterable[int]) -> list[Seat]:
        """Those in the shards of partitions, each once."""
        shards = {self.seat_of(partition).shard for partition in partitions}
        return [seat for seat in self.seats if seat.shard in shards]

    @property
    def ended(self) -> Error | None:
        """Why it can be used no more, if one of its sessions has ended."""
        return next((it.session.ended for it in self.seats if it.session.ended is not None), None)

    def leave(self, until: float) -> Steps[None]:
        """Give the name back. The server is told if it can be reached in time; it finds out by itself."""
        timeout_s = min(CLIENT_CLOSE_TIMEOUT_S, until - time.monotonic())
        try:
            if timeout_s <= 0:
                return
            tickets = []
            for seat in self.seats:
                with suppress(Error):  # this session is over, and the seat with it
                    ticket = seat.session.start(CloseAgent, seat.number, timeout_s=timeout_s)
                    tickets.append(ticket)
            for ticket in tickets:
                yield from answer(ticket, Done)
        except Error as error:
            log.debug("%s could not say goodbye: %s", self.title, error)
        finally:
            for seat in self.seats:
                self.link.titles.pop(seat.number, None)

    def abandon(self) -> None:
        """Give the name back without waiting: nobody will use it."""
        self.closed = True
        for seat in self.seats:
            self.link.titles.pop(seat.number, None)
            _dismiss(seat.session, seat.number)


def forked(what: str) -> InvalidState:
    """The error for whatever is used in a child process."""
    return InvalidState(
        f"{what} was made before this process was forked off: "
        "connect anew in the child, with the client's config"
    )


def open_agent(
    link: Link, kind: str, stream: str, name: str | None, partitions: list[int] | None
) -> Steps[Agent]:
    """Take a name; an older agent of that name is fenced. Without a name it gets one of its own.

    It is taken at the home of the stream, which says how the agent ranks among those of its name, and then in the
    other shards of its partitions. If one of those refuses, it is given back everywhere. In the end the home is
    asked again: a newer agent may have come meanwhile, and gone, and left nobody in the other shards who refuses.
    """
    if name is None:
        name = f"{kind}-{uuid.uuid4().hex}"
    check_name(name, kind)
    if partitions is not None:  # a mistake in them must not fence anyone
        chosen_partitions((yield from get_stream(link, stream)), partitions)
    else:
        check_name(stream)
    home, opened = yield from _open_at_home(link, kind, stream, name)
    try:
        others = yield from _sit_down(link, kind, name, opened, partitions)
    except BaseException:
        _dismiss(home.session, home.number)
        raise
    agent = Agent(link, kind, name, opened, [home, *others])
    if others:
        try:
            yield from answer(home.session.start(Commit, [home.number], []), Done)
        except BaseException:
            agent.abandon()
            raise
    return agent


def _open_at_home(link: Link, kind: str, stream: str, name: str) -> Steps[tuple[Seat, AgentOpened]]:
    shards = [link.shards.home_of(stream)]
    ((session, ticket),) = (yield from _ask_all(link, shards, (kind, stream, name))).items()
    opened = ticket.reply(AgentOpened)
    return Seat(session, opened.agent), opened


def _sit_down(
    link: Link, kind: str, name: str, opened: AgentOpened, partitions: list[int] | None
) -> Steps[list[Seat]]:
    """Take the name in the other shards, side by side; in all of them, or in none."""
    info = opened.stream
    ring = link.shards.ring_of(info.name, info.partitions)
    if len(ring) == 1:
        return []
    chosen = chosen_partitions(stream_of(info), partitions)
    wanted = {ring[partition % len(ring)] for partition in chosen} - {ring[0]}
    link.titles[opened.agent] = _title(kind, name, info.name)  # they know it by this number
    fields = (kind, info.name, name, opened.agent, info.id, info.version)
    try:
        asked = yield from _ask_all(link, sorted(wanted), fields)
    except BaseException:
        link.titles.pop(opened.agent, None)
        raise
    return [Seat(session, ticket.reply(AgentOpened).agent) for session, ticket in asked.items()]


def _ask_all(
    link: Link, shards: Sequence[int], fields: tuple[Any, ...]
) -> Steps[dict[Session, Ticket]]:
    """Open an agent in these shards, or in none. Where the session turns out to have ended, in a new one."""
    asked: dict[Session, Ticket] = {}
    try:
        missing = list(shards)
        for is_last in (False, True):
            for session in (yield from link.sessions_in(missing)).values():
                asked[session] = session.start(OpenAgent, *fields)
            for ticket in asked.values():
                if not ticket.ended:
                    yield ticket
            ended = [it for it, ticket in asked.items() if is_session_end(ticket.error)]
            if not ended or is_last:
                break
            missing = [session.shard for session in ended]
            for session in ended:
                del asked[session]
        if failure := _worst(ticket.error for ticket in asked.values()):
            raise failure
        return asked
    except BaseException:
        for session, ticket in asked.items():
            ticket.add_callback(partial(_dismiss_orphan, session))
        raise


def _worst(errors: Iterable[Error | None]) -> Error | None:
    """The error to be told of: a refusal says more than an answer that did not come."""
    found = [error for error in errors if error is not None]
    found.sort(key=lambda error: isinstance(error, Unavailable))
    return found[0] if found else None


def _title(kind: str, name: str, stream: str) -> str:
    return f"{kind} {name!r} of stream {stream!r}"


def _dismiss_orphan(session: Session, ticket: Ticket) -> None:
    """An agent was made, and nobody waited for it."""
    if ticket.error is None:
        _dismiss(session, ticket.reply(AgentOpened).agent)


def _dismiss(session: Session, agent: int) -> None:
    with suppress(Error):  # the session is over, and the agent with it
        session.start(CloseAgent, agent)
