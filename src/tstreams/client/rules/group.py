"""Agents that checkpoint together: all of it, or nothing."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from ...errors import BadRequest, Error, Fenced, InvalidState, NotFound, Unavailable
from . import closing
from .draft import Draft
from .failures import transaction_in
from .handling import Handling, at_hand
from .link import Link
from .parts import Moved
from .producer import Producer
from .reader import Reader
from .subscriber import Subscriber
from .ticket import Steps, Ticket
from .turns import Hold, Turns

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
        self._served: weakref.WeakSet[Subscriber] = weakref.WeakSet()
        """The subscribers that are members, or were: what their failed callbacks have left open is dropped."""
        self._unknown = False
        """Whether nobody knows what has become of the last checkpoint."""

    # Members.

    def add(self, member: Member) -> None:
        """Let an agent take part from now on."""
        agent = member.agent
        agent.check()
        if agent.link is not self._link:
            raise BadRequest(f"{agent.title} belongs to another client, and this group to its own")
        with _joining:
            if (held := _groups.get(agent)) is not None and (other := held()) is not None:
                which = "this group already" if other is self else "another group: remove it there"
                raise InvalidState(f"{agent.title} is in {which}")
            self._members[agent.id] = member
            _groups[agent] = weakref.ref(self)
            if isinstance(member, Subscriber):
                self._served.add(member)

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
            if (ended := agent.ended) is not None:
                raise InvalidState(f"{agent.title}: {ended.message}")
            if agent.in_doubt:
                raise InvalidState(
                    f"{agent.title}: nobody knows whether its last checkpoint took effect; make it, and "
                    "a group with it, anew under its name: the new one knows where it stands"
                )
        return members

    # Checkpoints.

    def checkpoint(self, sent: list[Ticket] | None = None) -> Steps[None]:
        """Checkpoint the transactions of all producers and the positions of all readers at once.

        Whoever is interrupted before the request has left has changed nothing. After that the answer says
        what became of it, and what is done with the group next waits for it. `sent` gets the request.
        """
        mine = at_hand()  # now: later parts of this may run elsewhere
        hold = Hold()
        try:
            yield from hold.enter(self._turns)
            members = self._usable()
            self._unknown = False
            if members:
                for member in members:
                    if not isinstance(member, Producer):
                        yield from hold.enter(member.saving)
                look = _Look(members, mine, self._served)
                yield from self._drop(look)
                yield from self._commit(members, look, hold, [] if sent is None else sent)
        finally:
            hold.leave()

    def _answered(self, members: list[Member], ticket: Ticket) -> None:
        """A checkpoint was sent, and this has become of it."""
        if isinstance(ticket.error, Unavailable):
            self._unknown = True
            for member in members:
                if not isinstance(member, Producer):
                    member.agent.in_doubt = True

    def _drop(self, look: _Look) -> Steps[None]:
        """Cancel what failed callbacks have left open: nothing else will."""
        try:
            for draft in look.spoiled:
                try:
                    yield from closing.cancel([draft])
                except (InvalidState, Fenced):
                    continue  # it has ended already
        except BaseException:
            look.release()
            raise

    def _commit(
        self, members: list[Member], look: _Look, hold: Hold, sent: list[Ticket]
    ) -> Steps[None]:
        with naming(members, look.drafts):
            yield from closing.prepare(look.drafts)
            ticket = yield from closing.send(
                [it.turns for it in members if isinstance(it, Producer)],
                [it.agent for it in members],
                look.drafts,
                look.positions,
            )
            sent.append(ticket)
            ticket.add_callback(partial(self._answered, members))
            hold.until(ticket)
            try:
                yield from closing.conclude(ticket, look.drafts, look.saved)
            except Unavailable:
                self._answered(members, ticket)  # the thread that ended it may not have told us yet
                raise

    def settle(self) -> Steps[None]:
        """Wait until what was begun before has ended."""
        yield from self._turns.enter()
        self._turns.leave()

    # Cancelling.

    def cancel(self) -> Steps[None]:
        """Cancel the transactions of all producers, and take all readers back to their last checkpoint.

        All is tried; the first thing that failed is raised then. What the server could not be asked to
        cancel is none of the group's any more, and will be cancelled.
        """
        hold = Hold()
        try:
            yield from hold.enter(self._turns)
            yield from self._cancel(self._usable(), hold)
        finally:
            hold.leave()

    def _cancel(self, members: list[Member], hold: Hold) -> Steps[None]:
        readers = [it for it in members if not isinstance(it, Producer)]
        producers = [it for it in members if isinstance(it, Producer)]
        for reader in readers:  # not between a checkpoint and its answer
            yield from hold.enter(reader.saving)
        for reader in readers:
            reader.rewind()
        # Before anything is waited for: what is opened meanwhile is none of it.
        claimed = [(it, it.claim(lambda _: True)) for it in producers]
        failure: Error | None = None
        try:
            while claimed:
                producer, drafts = claimed[0]
                try:
                    if drafts:
                        yield from closing.cancel(drafts)
                except Error as error:
                    if isinstance(error, Unavailable):  # they must not get into the next checkpoint
                        for draft in drafts:
                            producer.abandon(draft)
                    failure = failure or error
                claimed.pop(0)
        finally:
            # Whoever was interrupted has rewound the readers: the results must not be committed beside them.
            for producer, drafts in claimed:
                for draft in drafts:
                    producer.abandon(draft)
        if failure is not None:
            raise failure

    def give_up(self, error: BaseException, sent: Sequence[Ticket] = ()) -> Steps[None]:
        """After an error that its user must see: cancel what can be cancelled.

        `sent` is what a checkpoint had sent when it failed or was interrupted; if that worked after all,
        there is nothing to give up. If nobody knows whether it took effect the readers stay where they
        are, and no group takes them any further: that could lose or repeat something. New agents of the
        same names know where they stand.
        """
        hold = Hold()
        try:
            yield from hold.enter(self._turns)
            with _joining:
                members = [it for it in self._members.values() if not it.agent.closed]
            if sent:
                if (answer := sent[0].error) is None:
                    return
                error = answer
            if isinstance(error, Unavailable) and self._unknown:
                for member in members:
                    if isinstance(member, Producer):
                        for draft in member.claim(lambda _: True):
                            member.abandon(draft)
                return
            yield from self._cancel(members, hold)
        except Error as other:
            log.warning("a group could not be cancelled: %s", other)
        finally:
            hold.leave()


class _Look:
    """What a checkpoint of a group is made of.

    A transaction that was opened in a callback of a member goes with what the callback was called for:
    into this checkpoint if the callback has returned, or calls us; into a later one if it is at work;
    and nowhere (`spoiled`) if it failed.
    """

    def __init__(
        self, members: list[Member], mine: Handling | None, served: Container[Subscriber]
    ) -> None:
        self._served = served
        self._mine = mine if mine is not None and mine.under_way else None
        self._returns: dict[Subscriber, int] = {}
        self._saved: list[Callable[[], None]] = []
        self.positions: list[Moved] = []
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
        producers = [it for it in members if isinstance(it, Producer)]
        for member in producers:
            member.own_up(self._is_done)
        for member in producers:
            self.drafts += member.claim(self._is_done)
            self.spoiled += member.claim(self._is_spoiled)

    def _is_done(self, draft: Draft) -> bool:
        handling = draft.handling
        if handling is None:
            return True
        if self._is_spoiled(draft):
            return False
        returns = self._returns.get(handling.subscriber)
        return returns is None or handling is self._mine or 0 < handling.returned_as <= returns

    def _is_spoiled(self, draft: Draft) -> bool:
        handling = draft.handling
        return handling is not None and handling.dropped and handling.subscriber in self._served

    def release(self) -> None:
        """There will be no checkpoint: what was claimed for it is as before."""
        for draft in (*self.drafts, *self.spoiled):
            draft.unseal()

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
