"""Agents that checkpoint together: all of it, or nothing."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from ...errors import BadRequest, Error, Fenced, InvalidState, NotFound, Unavailable
from ...protocol import ReadPosition
from . import closing
from .draft import Draft
from .failures import transaction_in
from .handling import at_hand
from .link import Link
from .producer import Producer
from .reader import Reader
from .subscriber import Subscriber
from .ticket import Steps
from .turns import Turns

log = logging.getLogger("tstreams.client")

Member: TypeAlias = Producer | Reader | Subscriber

_joining = threading.Lock()
"""Held while an agent joins a group: it is in one at most."""

_groups: weakref.WeakKeyDictionary[object, weakref.ref[Group]] = weakref.WeakKeyDictionary()
"""The group of each agent that is in one. Groups that nobody has any more hold nobody."""


class Group:
    """Producers, consumers and subscribers of one client.

    Invariants: every member is in this group only. One checkpoint or cancel runs at a time. Turns are
    entered in one order everywhere: the group's, the readers' by their numbers, the producers' by theirs.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._members: dict[int, Member] = {}
        self._turns = Turns()

    # Members.

    def add(self, member: Member) -> None:
        """Let an agent take part from now on."""
        agent = member.agent
        agent.check()
        if agent.session.link is not self._link:
            raise BadRequest(f"{agent.title} belongs to another client, and this group to its own")
        with _joining:
            if (held := _groups.get(agent)) is not None and (other := held()) is not None:
                which = "this group already" if other is self else "another group: remove it there"
                raise InvalidState(f"{agent.title} is in {which}")
            for it in self._members.values():
                if it.agent.session.shard != agent.session.shard:
                    raise BadRequest(
                        f"{agent.title} and {it.agent.title} live in different shards: "
                        "a group is within one"
                    )
            self._members[agent.id] = member
            _groups[agent] = weakref.ref(self)

    def remove(self, member: Member) -> None:
        """Let an agent take part no more. What it has open stays open."""
        with _joining:
            if self._members.get(member.agent.id) is not member:
                raise NotFound(f"{member.agent.title} is not in this group")
            del self._members[member.agent.id]
            del _groups[member.agent]

    def clear(self) -> None:
        """Remove all members."""
        with _joining:
            for member in self._members.values():
                del _groups[member.agent]
            self._members.clear()

    def exists(self, member: Member) -> bool:
        """Whether an agent is a member."""
        return self._members.get(member.agent.id) is member

    def __len__(self) -> int:
        return len(self._members)

    def _usable(self) -> list[Member]:
        """The members, in the order of their numbers; none of them may be closed."""
        with _joining:
            members = sorted(self._members.values(), key=lambda it: it.agent.id)
        for member in members:
            agent = member.agent
            agent.check()
            if agent.session.ended is not None:
                raise InvalidState(f"{agent.title}: {agent.session.ended.message}")
        return members

    # Checkpoints.

    def checkpoint(self) -> Steps[None]:
        """Checkpoint the transactions of all producers and the positions of all readers at once."""
        yield from self._turns.enter()
        try:
            members = self._usable()
            if members:
                yield from self._checkpoint(members)
        finally:
            self._turns.leave()

    def _checkpoint(self, members: list[Member]) -> Steps[None]:
        entered: list[Turns] = []
        try:
            for member in members:
                if not isinstance(member, Producer):
                    yield from member.saving.enter()
                    entered.append(member.saving)
            look = _Look(members)
            yield from self._drop(look.spoiled)
            with naming(members, look.drafts):
                yield from closing.prepare(look.drafts)
                yield from closing.commit(
                    members[0].agent.session,
                    [it.turns for it in members if isinstance(it, Producer)],
                    [it.agent.id for it in members],
                    look.drafts,
                    look.positions,
                )
            look.saved()
        finally:
            for turns in entered:
                turns.leave()

    def _drop(self, drafts: list[Draft]) -> Steps[None]:
        """Cancel what failed callbacks have left open: nothing else will."""
        for draft in drafts:
            try:
                agent = draft.producer.agent
                yield from closing.cancel(agent.session, agent.id, [draft])
            except (InvalidState, Fenced):
                continue  # it has ended already

    def cancel(self) -> Steps[None]:
        """Cancel the transactions of all producers, and take all readers back to their last checkpoint.

        All is tried; the first thing that failed is raised then.
        """
        yield from self._turns.enter()
        try:
            yield from self._cancel(self._usable())
        finally:
            self._turns.leave()

    def _cancel(self, members: list[Member]) -> Steps[None]:
        failure: Error | None = None
        for member in members:
            if not isinstance(member, Producer):
                member.rewind()
                continue
            try:
                yield from member.cancel()
            except Error as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def give_up(self, error: BaseException) -> Steps[None]:
        """After an error that its user must see: cancel what can be cancelled.

        If nobody knows whether a checkpoint took effect the readers stay where they are: who goes on with
        them could lose or repeat something. New agents of the same names know where they stand.
        """
        yield from self._turns.enter()
        try:
            with _joining:
                members = [it for it in self._members.values() if not it.agent.closed]
            if isinstance(error, Unavailable):
                for member in members:
                    if isinstance(member, Producer):
                        for draft in member.claim(lambda _: True):
                            member.abandon(draft)
                return
            yield from self._cancel(members)
        except Error as other:
            log.warning("a group could not be cancelled: %s", other)
        finally:
            self._turns.leave()


class _Look:
    """What a checkpoint of a group is made of.

    A transaction that was opened in a callback of a member goes with what the callback was called for:
    into this checkpoint if the callback has returned, or calls us; into a later one if it is at work;
    and nowhere (`spoiled`) if it failed.
    """

    def __init__(self, members: list[Member]) -> None:
        self._mine = at_hand()
        self._returns: dict[Subscriber, int] = {}
        self._saved: list[Callable[[], None]] = []
        self.positions: list[ReadPosition] = []
        self.drafts: list[Draft] = []
        self.spoiled: list[Draft] = []
        for member in members:  # before the transactions: one that is opened later is not in it
            if isinstance(member, Subscriber):
                marks, self._returns[member] = member.look(self._mine)
                self._saved.append(partial(member.saved, marks))
                self.positions += member.positions_of(marks)
            elif isinstance(member, Reader):
                read = member.marks()
                self._saved.append(partial(member.saved, read))
                self.positions += member.positions_of(read)
        for member in members:
            if isinstance(member, Producer):
                self.drafts += member.claim(self._is_done)
                self.spoiled += member.claim(self._is_spoiled)

    def _is_done(self, draft: Draft) -> bool:
        handling = draft.handling
        if handling is None or handling.subscriber not in self._returns:
            return True
        if handling.dropped:
            return False
        return (
            handling is self._mine or 0 < handling.returned_as <= self._returns[handling.subscriber]
        )

    def _is_spoiled(self, draft: Draft) -> bool:
        handling = draft.handling
        return handling is not None and handling.dropped and handling.subscriber in self._returns

    def saved(self) -> None:
        """The checkpoint has worked."""
        for save in self._saved:
            save()


@contextmanager
def naming(members: list[Member], drafts: list[Draft]) -> Iterator[None]:
    """Let an error say which member it is about, and tell a subscriber that was fenced."""
    try:
        yield
    except Error as error:
        guilty = _guilty(members, drafts, error)
        if guilty is None:
            raise
        if isinstance(guilty, Subscriber) and isinstance(error, Fenced):
            guilty.fenced(error)
        if error.message.startswith(guilty.agent.title):
            raise
        raise type(error)(f"{guilty.agent.title}: {error.message}") from error


def _guilty(members: list[Member], drafts: list[Draft], error: Error) -> Member | None:
    for member in members:
        if error.message.startswith(member.agent.title):
            return member
    transaction_id = transaction_in(error)
    for draft in drafts:
        if draft.id == transaction_id:
            return draft.producer
    return None
