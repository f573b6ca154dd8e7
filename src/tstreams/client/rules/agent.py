"""An agent: a name that is held on the server, by a producer or a reader."""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import suppress
from functools import partial

from moebius import process

from ...errors import Error, InvalidState
from ...limits import CLIENT_CLOSE_TIMEOUT_S
from ...model import Stream, check_name
from ...protocol import AgentOpened, CloseAgent, Done, OpenAgent
from .link import Link
from .partitioning import chosen_partitions
from .session import Session
from .streams import get_stream, stream_of
from .ticket import Steps, Ticket, answer

log = logging.getLogger("tstreams.client")


class Agent:
    """A producer's or a reader's name, and the session that holds it."""

    def __init__(self, session: Session, kind: str, name: str, opened: AgentOpened) -> None:
        self.session = session
        self.kind = kind
        self.name = name
        self.id = opened.agent
        self.stream: Stream = stream_of(opened.stream)
        self.stream_id = opened.stream.id
        self.title = f"{kind} {name!r} of stream {self.stream.name!r}"
        """What errors call it."""
        self.closed = False
        self.in_doubt = False
        """Of a reader: whether nobody knows if the checkpoint of a group has moved it."""
        self._pid = process.pid
        session.titles[self.id] = self.title

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

    def leave(self, until: float) -> Steps[None]:
        """Give the name back. The server is told if it can be reached in time; it finds out by itself."""
        timeout_s = min(CLIENT_CLOSE_TIMEOUT_S, until - time.monotonic())
        try:
            if timeout_s <= 0:
                return
            ticket = self.session.start(CloseAgent, self.id, timeout_s=timeout_s)
            yield from answer(ticket, Done)
        except Error as error:
            log.debug("%s could not say goodbye: %s", self.title, error)
        finally:
            self.session.titles.pop(self.id, None)

    def abandon(self) -> None:
        """Give the name back without waiting: nobody will use it."""
        self.closed = True
        _dismiss(self.session, self.id)


def forked(what: str) -> InvalidState:
    """The error for whatever is used in a child process."""
    return InvalidState(
        f"{what} was made before this process was forked off: "
        "connect anew in the child, with the client's config"
    )


def open_agent(
    link: Link, kind: str, stream: str, name: str | None, partitions: list[int] | None
) -> Steps[Agent]:
    """Take a name; an older agent of that name is fenced. Without a name it gets one of its own."""
    if name is None:
        name = f"{kind}-{uuid.uuid4().hex}"
    check_name(name, kind)
    if partitions is not None:  # a mistake in them must not fence anyone
        chosen_partitions((yield from get_stream(link, stream)), partitions)
    else:
        check_name(stream)
    session = yield from link.session(link.shard_of(stream))
    ticket = session.start(OpenAgent, kind, stream, name)
    try:
        opened = yield from answer(ticket, AgentOpened)
    except BaseException:
        ticket.add_callback(partial(_dismiss_orphan, session))
        raise
    return Agent(session, kind, name, opened)


def _dismiss_orphan(session: Session, ticket: Ticket) -> None:
    """An agent was made, and nobody waited for it."""
    if ticket.error is None:
        _dismiss(session, ticket.reply(AgentOpened).agent)


def _dismiss(session: Session, agent: int) -> None:
    with suppress(Error):  # the session is over, and the agent with it
        session.start(CloseAgent, agent)
