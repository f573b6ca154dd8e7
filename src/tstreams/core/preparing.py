"""What groups that span shards may do: the part of a participant, and the part of the decider."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import BadRequest, InvalidState, TooLarge
from ..limits import LEASE_MS_MAX, LEASE_MS_MIN, OPEN_TRANSACTIONS_MAX, PREPARED_MAX
from ..protocol import AskDecision, Group, Prepare, Settle
from ..sharding import giver_of
from .records import AnyRecord, ItemsSent, Prepared, Refused, Settled
from .rules import Rules
from .state import State


class Preparing:
    """Decides on what is prepared and what was decided. Nothing here changes the state."""

    def __init__(self, state: State, rules: Rules) -> None:
        self._state = state
        self._rules = rules
        rules.register(Prepare, lambda now_ms, request, _: self._prepare(now_ms, request, ()))
        rules.bringing[Prepare] = self._prepare

    # The participant.

    def _prepare(
        self, now_ms: int, request: Prepare, counts: Sequence[int]
    ) -> tuple[AnyRecord, ...]:
        """As for a commit, but what is new stays open, as do the others, until the decision comes."""
        self.check(request.group, request.lease_ms)
        agents = {agent_id: self._rules.agent(agent_id) for agent_id in request.agents}
        brought, filled, new = self._rules.brought(
            now_ms, request, agents, counts, request.lease_ms
        )
        if len(self._state.open) + len(new) > OPEN_TRANSACTIONS_MAX:
            raise TooLarge(f"{OPEN_TRANSACTIONS_MAX} transactions are open already")
        it = self._rules.committed(now_ms, request, agents, filled, new)
        prepared = Prepared(
            request.session,
            request.sequence,
            request.group,
            request.lease_ms,
            list(agents),
            it.transactions,
            it.empty,
            it.positions,
            list(request.transactions) if request.give_back else [],
            self._cut(brought) if request.give_back else [],
        )
        return (*brought, prepared)

    def _cut(self, brought: Sequence[AnyRecord]) -> list[tuple[int, int, bool]]:
        """The open transactions that get a last batch, and how they are without it."""
        opened = self._state.open
        return [
            (it.transaction, it.count, opened[it.transaction].unfinished)
            for it in brought
            if isinstance(it, ItemsSent)
        ]

    def check(self, group: Group, lease_ms: int) -> None:
        """Refuse what can be no group of another shard, or is one that is prepared already."""
        state = self._state
        if (
            group.shard >= state.shards
            or group.shard == state.number
            or giver_of(group.session) != group.shard
            or not group.number
        ):
            raise BadRequest(f"{group} cannot be decided on: shard {state.number} takes part")
        if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
            raise BadRequest(f"a lease is {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {lease_ms}")
        if group in state.groups.prepared:
            raise InvalidState(f"{group} is prepared here already")
        if len(state.groups.prepared) >= PREPARED_MAX:
            raise TooLarge(f"{PREPARED_MAX} checkpoints wait for their decisions already")

    def settle(self, now_ms: int, request: Settle) -> tuple[AnyRecord, ...]:
        """The decision on a group has come. No record: it came before, or there was nothing to decide on."""
        prepared = self._state.groups.prepared.get(request.group)
        if prepared is None:
            return ()
        if request.session and request.session != prepared.session:
            raise BadRequest(f"{request.group} was prepared by another session")
        return (Settled(0, 0, request.group, request.committed, now_ms),)

    # The decider.

    def decide(self, request: AskDecision) -> tuple[tuple[AnyRecord, ...], bool]:
        """Whether a group has happened. If that is not decided, it never will."""
        group = request.group
        if group.shard != self._state.number:
            raise BadRequest(f"{group} is not decided on in shard {self._state.number}")
        decided = self._state.groups.decided.get((group.session, group.number))
        if decided is not None:
            return (), decided.committed
        session = self._state.sessions.get(group.session)
        if session is None or group.number <= session.refused_to or group.number in session.refused:
            return (), False
        return (Refused(group.session, 0, group.number, request.reason, []),), False
