"""Groups that span shards: what is prepared here and decided elsewhere, and what was decided here."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from ..protocol import Group
from .facts import DecidedGroup, PreparedGroup

Position = tuple[int, str, int]
"""A reader's stream, its name, and a partition."""


class Groups:
    """Both sides of the groups of a shard.

    Invariants: `positions`, `replacing` and the members have exactly what the groups in `prepared` hold. A group is in `_leases`
    as long as nobody was told to ask for its decision.
    """

    def __init__(self) -> None:
        self.prepared: dict[Group, PreparedGroup] = {}
        self.positions: dict[Position, Group] = {}
        """Positions that the groups would move."""
        self.replacing: dict[int, list[Group]] = {}
        """Streams of which groups would drop what they held before."""
        self.decided: dict[tuple[int, int], DecidedGroup] = {}
        """What was decided here and is not known to all, by session and number."""
        self.due: dict[Group, str] = {}
        """Groups whose deciders are to be asked, and the reason. Whoever asks empties it."""
        self._of_agent: dict[int, list[Group]] = {}
        self._leases: list[tuple[int, int, Group]] = []
        self._count = 0

    def add(self, it: PreparedGroup, now_ms: int) -> None:
        """A group is prepared."""
        self.prepared[it.group] = it
        for stream, reader, partition, _ in it.positions:
            self.positions[stream, reader, partition] = it.group
        for stream, _ in it.replaced:
            self.replacing.setdefault(stream, []).append(it.group)
        for agent in it.agents:
            self._of_agent.setdefault(agent, []).append(it.group)
        it.expires_at_ms = now_ms + it.lease_ms
        self._count += 1  # two groups of one time cannot be compared
        heapq.heappush(self._leases, (it.expires_at_ms, self._count, it.group))

    def remove(self, group: Group) -> PreparedGroup:
        """A group is settled."""
        it = self.prepared.pop(group)
        for stream, reader, partition, _ in it.positions:
            self.positions.pop((stream, reader, partition), None)
        for stream, _ in it.replaced:
            _discard(self.replacing, stream, group)
        for agent in it.agents:
            _discard(self._of_agent, agent, group)
        self.due.pop(group, None)
        return it

    def of_agents(self, agents: Iterable[int]) -> list[Group]:
        """The groups that have one of these agents as a member."""
        if not self._of_agent:
            return []
        return list(dict.fromkeys(it for agent in agents for it in self._of_agent.get(agent, ())))

    def of_stream(self, stream: int, holds: Callable[[int], bool]) -> list[Group]:
        """The groups that have to do with a stream; `holds` says whether a transaction belongs to it."""
        return [
            group
            for group, it in self.prepared.items()
            if any(position[0] == stream for position in it.positions)
            or any(replaced == stream for replaced, _ in it.replaced)
            or any(map(holds, it.held))
        ]

    def of_reader(self, stream: int, reader: str) -> list[Group]:
        """The groups that move a reader."""
        found = (group for key, group in self.positions.items() if key[:2] == (stream, reader))
        return list(dict.fromkeys(found))

    def ask(self, groups: Iterable[Group], reason: str) -> None:
        """Somebody should ask for the decisions on these."""
        for group in groups:
            self.due.setdefault(group, reason)

    def take_expired(self, now_ms: int) -> list[Group]:
        """The groups that have waited for as long as they may."""
        expired = []
        while self._leases and self._leases[0][0] <= now_ms:
            _, _, group = heapq.heappop(self._leases)
            if group in self.prepared:
                expired.append(group)
        return expired

    def clock_went_back(self, now_ms: int) -> None:
        """As of leases of transactions: no group waits longer than if it had just been prepared."""
        self._leases = []
        for count, it in enumerate(self.prepared.values()):
            it.expires_at_ms = min(it.expires_at_ms, now_ms + it.lease_ms)
            self._leases.append((it.expires_at_ms, count, it.group))
        heapq.heapify(self._leases)


def _discard(table: dict[int, list[Group]], key: int, group: Group) -> None:
    groups = table[key]
    groups.remove(group)
    if not groups:
        del table[key]
