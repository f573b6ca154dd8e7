"""Several shards without I/O that say to each other what a test lets them say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.unit.core_client import Client, NoFacts
from tstreams.core.records import AnyRecord
from tstreams.core.shard import Shard
from tstreams.protocol import (
    AgentOpened,
    AskDecision,
    Brought,
    Commit,
    Decision,
    Group,
    OpenAgent,
    Prepare,
    ReadPosition,
    Settle,
    StreamInfo,
)
from tstreams.sharding import home_of, shards_of

SHARDS = 3
LEASE_MS = 1000
HOME = home_of("clicks", SHARDS)
_, FIRST, SECOND = shards_of("clicks", 3, SHARDS)


class Member(Client):
    """A client of one of several shards."""

    def __init__(self, number: int, shards: int = SHARDS) -> None:
        shard = Shard(NoFacts(), last_id=0, last_number=0, now_ms=0, number=number, shards=shards)
        super().__init__(shard)

    def keep(self, records: Sequence[AnyRecord]) -> list[AnyRecord]:
        """Records that did not come of a request."""
        self.log += records
        return list(records)

    def another(self) -> Member:
        """Another client of the same shard."""
        other = Member.__new__(Member)
        Client.__init__(other, self.shard, self.log)
        other.now_ms = self.now_ms
        return other

    def again(self) -> Shard:
        """The shard after a restart that found nothing but its log."""
        state = self.shard.state
        again = Shard(
            NoFacts(),
            last_id=0,
            last_number=0,
            now_ms=self.now_ms,
            number=state.number,
            shards=state.shards,
        )
        for record in self.log:
            again.replay(self.now_ms, record)
        return again


class Cluster:
    """A client with a session in each of three shards, and a stream with a partition in each."""

    def __init__(self) -> None:
        self.members = [Member(it) for it in range(SHARDS)]
        self.info = self.members[HOME].create("clicks", 3)
        self._groups = 0

    @property
    def home(self) -> Member:
        return self.members[HOME]

    @property
    def first(self) -> Member:
        return self.members[FIRST]

    @property
    def second(self) -> Member:
        return self.members[SECOND]

    def copy(self, shard: int, info: StreamInfo | None = None) -> list[AnyRecord]:
        """Let a shard have what the home says."""
        member = self.members[shard]
        return member.keep(member.shard.copy(member.now_ms, info or self.info))

    def agents(self, name: str = "p", kind: str = "producer") -> dict[int, int]:
        """An agent in all shards."""
        opened = self.home.ask(OpenAgent, kind, "clicks", name)
        assert isinstance(opened, AgentOpened)
        numbers = {HOME: opened.agent}
        for shard in (FIRST, SECOND):
            self.copy(shard)
            rank = (opened.agent, self.info.id, 1)
            numbers[shard] = self.members[shard].ask(OpenAgent, kind, "clicks", name, *rank).agent
        return numbers

    def group(self) -> Group:
        self._groups += 1
        return Group(HOME, self.home.session, self._groups)

    def prepare(
        self,
        shard: int,
        group: Group,
        agents: list[int],
        transactions: Sequence[int] = (),
        positions: Sequence[ReadPosition] = (),
        brought: Sequence[Brought] = (),
        give_back: bool = False,
    ) -> Any:
        return self.members[shard].ask(
            Prepare,
            group,
            LEASE_MS,
            agents,
            list(transactions),
            list(positions),
            list(brought),
            give_back,
            brought=[1] * len(brought),
        )

    def decide(self, group: Group, others: list[int], agents: Sequence[int] = ()) -> Any:
        return self.home.ask(Commit, list(agents), [], [], [], others, group.number)

    def settle(self, shard: int, group: Group, committed: bool, session: int = 0) -> Any:
        member = self.members[shard]
        settle = Settle(session, group, committed)
        return member.keep(member.shard.settle(member.now_ms, settle)[0])

    def ask(self, group: Group, reason: str = "expired") -> bool:
        """Ask the decider."""
        records, decision = self.home.shard.decide(self.home.now_ms, AskDecision(group, reason))
        self.home.keep(records)
        assert isinstance(decision, Decision)
        return decision.committed
