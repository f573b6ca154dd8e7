"""What a commit does, shard by shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...items import Buffer
from ...protocol import Brought, Commit, Group, Prepare, ReadPosition
from .agent import Agent, Seat
from .session import Session
from .ticket import Ticket

if TYPE_CHECKING:
    from .draft import Draft


class Moved(msgspec.Struct, gc=False):
    """How far a reader has come in a partition."""

    seat: Seat
    partition: int
    transaction: int
    after: int | None = None
    """Where it must stand now, if the commit depends on that."""


class Fresh(msgspec.Struct, gc=False):
    """A batch that is all of a transaction, which the commit makes."""

    seat: Seat
    partition: int
    batch: Buffer


class Part:
    """What a commit does in one shard.

    Invariant: room in the window has been taken for all that it brings, until it is sent.
    """

    __slots__ = ("_working", "agents", "drafts", "fresh", "moved", "session", "shard")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.shard = session.shard
        self.agents: list[int] = []
        """The numbers of the members, which must hold their names."""
        self.drafts: list[Draft] = []
        self.fresh: list[Fresh] = []
        self.moved: list[Moved] = []
        self._working: set[int] = set()

    @property
    def weight(self) -> tuple[int, int]:
        """How much happens here. Transactions count first: those of the shard that decides outlive a refusal."""
        return len(self.drafts) + len(self.fresh), len(self.moved)

    def involve(self, seat: Seat) -> None:
        """An agent has something to do here."""
        self._working.add(seat.number)

    def involves(self, seat: Seat) -> bool:
        """Whether an agent has something to do here."""
        return seat.number in self._working

    def commit(self, others: Sequence[int] = (), number: int = 0) -> Ticket:
        """Commit it and, if the rest of a group is prepared in other shards, decide on that."""
        ids, positions, brought, batches = self._contents()
        fields = (self.agents, ids, positions, brought, list(others), number)
        if not batches:
            return self.session.start(Commit, *fields)
        return self.session.start_commit(*fields, batches=batches)

    def prepare(self, group: Group, lease_ms: int) -> Ticket:
        """Make it ready: another shard decides."""
        ids, positions, brought, batches = self._contents()
        fields = (group, lease_ms, self.agents, ids, positions, brought, True)
        if not batches:
            return self.session.start(Prepare, *fields)
        return self.session.start_commit(*fields, batches=batches, kind=Prepare)

    def drop(self) -> None:
        """It will not be sent."""
        for it in self.fresh:
            self.session.link.window.leave(len(it.batch))
        for draft in self.drafts:
            draft.unseal()

    def _contents(
        self,
    ) -> tuple[list[int], list[ReadPosition], list[Brought], tuple[Buffer, ...]]:
        """Transactions, positions, what comes along, and its batches: they leave now."""
        ids: list[int] = []
        brought: list[Brought] = []
        batches: list[Buffer] = []
        for draft in self.drafts:
            if draft.id:
                ids.append(draft.id)
            if draft.last is not None:
                brought.append(Brought(draft.seat.number, draft.partition, draft.id))
                batches.append(draft.hand_over())
        for new in self.fresh:
            brought.append(Brought(new.seat.number, new.partition))
            batches.append(new.batch)
        if len(batches) > 1:
            self.session.link.window.join(len(batches))
        positions = [
            ReadPosition(it.seat.number, it.partition, it.transaction, it.after)
            for it in self.moved
        ]
        return ids, positions, brought, tuple(batches)


def split(
    agents: Sequence[Agent],
    drafts: Sequence[Draft],
    moved: Sequence[Moved],
    fresh: Sequence[Fresh] = (),
) -> list[Part]:
    """What happens in which shard. Each agent is a member where it has something to do; one that has nothing
    to do must hold its name, too, wherever that costs no other shard, or else at home."""
    if agents[0].link.shards.is_one:
        only = Part(agents[0].seats[0].session)
        only.agents = [agent.id for agent in agents]
        only.drafts, only.moved, only.fresh = list(drafts), list(moved), list(fresh)
        return [only]
    parts: dict[int, Part] = {}
    for draft in drafts:
        _part_at(parts, draft.seat).drafts.append(draft)
    for it in moved:
        _part_at(parts, it.seat).moved.append(it)
    for new in fresh:
        _part_at(parts, new.seat).fresh.append(new)
    for agent in agents:
        here = [seat for seat in agent.seats if seat.shard in parts]
        for seat in [it for it in here if parts[it.shard].involves(it)] or here[:1]:
            parts[seat.shard].agents.append(seat.number)
        if not here:
            seat = agent.seats[0]
            parts[seat.shard] = Part(seat.session)
            parts[seat.shard].agents.append(seat.number)
    return list(parts.values())


def _part_at(parts: dict[int, Part], seat: Seat) -> Part:
    part = parts.get(seat.shard)
    if part is None:
        part = parts[seat.shard] = Part(seat.session)
    part.involve(seat)
    return part
