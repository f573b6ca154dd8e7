"""Transactions, partitions and streams, as all clients together know them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from math import inf
from typing import TypeAlias

from tests.checker.digest import NOTHING, Content, joined
from tests.checker.firsts import Firsts
from tests.checker.history import (
    OK,
    UNKNOWN,
    AnyOperation,
    Cancel,
    Commit,
    Empty,
    Instant,
    Key,
    Open,
    Purged,
    Read,
    Send,
)

IDS_PER_MS = 100_000
ID_END = 2**63
"""Behind all ids."""
CONTENTS_MAX = 64
"""Sends whose outcome is not known double what a transaction may hold; beyond this nothing is claimed."""

Node: TypeAlias = Commit | Instant
"""What makes transactions visible."""


class Transaction:
    """One transaction, as all clients together know it."""

    __slots__ = (
        "cancel",
        "closed_at",
        "commits",
        "contents",
        "effective",
        "key",
        "open_until",
        "opened",
        "prefixes",
        "read_at",
        "refusals",
    )

    def __init__(self, key: Key, opened: Open | Instant | None) -> None:
        self.key = key
        self.opened = opened
        self.contents: set[Content] | None = {NOTHING}
        """What it may hold when it is complete; None: too many things."""
        self.prefixes: set[Content] = set()
        self.commits: list[Node] = []
        """Those that took effect, or may have."""
        self.refusals: list[AnyOperation] = []
        self.cancel: Cancel | None = None
        self.effective: float = inf
        """From when on readers must see it, unless something before it is open."""
        self.read_at: float = inf
        self.closed_at: float = inf
        """From when on it is surely not open."""
        self.open_until: float = -inf
        """Until when it was surely open."""

    @property
    def id(self) -> int:
        return self.key[2]

    def add(self, send: Send | Instant) -> None:
        """Items were sent into it."""
        if self.contents is None or send.outcome not in (OK, UNKNOWN):
            return
        self.prefixes |= self.contents
        more = {joined(it, (send.count, send.digest)) for it in self.contents}
        if send.outcome == UNKNOWN and isinstance(send, Send):
            more |= self.contents
        self.contents = more if len(more) <= CONTENTS_MAX else None

    def __str__(self) -> str:
        return show(self.key)


def show(key: Key) -> str:
    """A transaction, in words."""
    return f"transaction {key[2]} of {key[0]}/{key[1]}"


def says_expired(refusal: AnyOperation) -> bool:
    """Whether a refusal says that this one has expired; of many it may have been another."""
    many = isinstance(refusal, Commit | Cancel) and len(refusal.transactions) > 1
    return refusal.outcome == "expired" and not many


class Partition:
    """All transactions of a partition, and all looks at it, in the order of time."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.empties: list[Empty] = []
        self.unplaced: list[Instant] = []
        """Instants whose id nobody was told."""
        self.lost_opens: list[Open] = []
        """Transactions that may be open under an id that nobody was told."""
        self.members: list[Transaction] = []

    def finish(self, ended_at: Callable[[str, int], float]) -> None:
        """Everything is known: make it quick to look up. `ended_at`: when an agent had lost its name."""
        self._lost_until = Ceiling(
            [(it.start, ended_at(it.agent, it.epoch)) for it in self.lost_opens]
        )
        self.opened = sorted((it for it in self.members if it.opened), key=lambda it: it.id)
        self.opened_ids = [it.id for it in self.opened]
        self._still_open = Firsts([-it.closed_at for it in self.opened])
        self._surely_open = Firsts([-it.open_until for it in self.opened])
        self.visible = sorted(
            (it for it in self.members if it.effective < inf), key=lambda it: it.id
        )
        self.visible_ids = [it.id for it in self.visible]
        self._effective = Firsts([it.effective for it in self.visible])

    def lost_opens_until(self, at: float) -> float:
        """Until when some that nobody was told of, and that began by this time, may have been open."""
        return self._lost_until.until(at)

    def first_due(self, after: int, at: float) -> Transaction | None:
        """The first one after an id that readers had to see before this time."""
        found = self._effective.below(at, bisect_right(self.visible_ids, after))
        return None if found is None else self.visible[found]

    def first_possibly_open(self, after: int, at: float) -> float:
        """The id of the first one after an id that may have been open at this time."""
        found = self._still_open.below(-at, bisect_right(self.opened_ids, after))
        return inf if found is None else self.opened_ids[found]

    def first_surely_open(self, after: int, at: float) -> Transaction | None:
        """The first one after an id that was surely open at this time."""
        found = self._surely_open.below(-at, bisect_right(self.opened_ids, after))
        return None if found is None else self.opened[found]


class StreamFacts:
    """What became of a stream."""

    def __init__(self) -> None:
        self.ttl_ms_min: float = inf
        self.ttl_ms_max: float = 0
        self.gone_from: float = inf
        """From when on it may be deleted, and from when on it surely is."""
        self.gone_since: float = inf
        self.purges: list[Purged] = []

    def finish(self) -> None:
        """Everything is known: make it quick to look up."""
        self._begun = Ceiling([(it.start, it.before) for it in self.purges])
        done = [it for it in self.purges if it.outcome == OK]
        self._done = Ceiling([(it.end, it.before) for it in done])

    def maybe_purged_below(self, at: float) -> float:
        """What has a smaller id may be purged at this time."""
        return self._begun.until(at)

    def surely_purged_below(self, at: float) -> float:
        """What has a smaller id must be purged at this time."""
        return self._done.until(at)


class Ceiling:
    """The greatest number so far, at any time."""

    def __init__(self, steps: list[tuple[int, float]]) -> None:
        steps.sort()
        self._times = [at for at, _ in steps]
        self._greatest = [0, *accumulate((number for _, number in steps), max)]

    def until(self, at: float) -> float:
        return self._greatest[bisect_right(self._times, at)]
