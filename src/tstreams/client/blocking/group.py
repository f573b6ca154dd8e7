"""A checkpoint group."""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeAlias

from ...errors import BadRequest
from ..pickling import refuse_to_pickle
from ..rules import group as rules
from ..rules.ticket import Ticket
from .consumer import Consumer
from .driver import Driver
from .producer import Producer
from .subscriber import Subscriber

Agent: TypeAlias = Producer | Consumer | Subscriber


class CheckpointGroup:
    """Producers, consumers and subscribers that checkpoint together: all of it takes effect, or nothing.

    An agent is in one group at most. Threads may share a group: checkpoints and cancels of it, and of its
    readers on their own, run one after the other. `with` it: leaving the block checkpoints, an exception
    cancels. A group needs no closing, and closes none of its members.
    """

    def __init__(self, driver: Driver, group: rules.Group) -> None:
        self._driver = driver
        self._rules = group

    def add(self, agent: Agent) -> None:
        """Let an agent take part. `InvalidState` if it is closed, or is in a group already."""
        self._rules.add(_rules_of(agent))

    def remove(self, agent: Agent) -> None:
        """Let an agent take part no more; what it has open stays open. `NotFound` if it is no member."""
        self._rules.remove(_rules_of(agent))

    def clear(self) -> None:
        """Remove all agents."""
        self._rules.clear()

    def exists(self, agent: Agent) -> bool:
        """Whether an agent is a member."""
        return self._rules.exists(_rules_of(agent))

    def __contains__(self, agent: Agent) -> bool:
        return self.exists(agent)

    def __len__(self) -> int:
        return len(self._rules)

    def checkpoint(self) -> None:
        """Checkpoint all open transactions of its producers and all positions of its readers, at once.

        If a member was closed, fenced, or had a transaction that expired, nothing is written, and the
        error says which it was. On `Timeout` or `Unavailable` nobody may know whether it took effect.
        If so, the group refuses to go on with its readers (`InvalidState`): make the agents anew.

        If it spans shards of the server and is refused, transactions of it may be dropped; a group with
        readers must be cancelled then before its next checkpoint (`InvalidState`).

        Of a subscriber it covers the callbacks that have returned and, if it is called inside a callback,
        that one too. Transactions that other callbacks have opened, and that are still at work, stay open
        for a later checkpoint; those of callbacks that failed are cancelled.
        """
        self._driver.run(self._rules.checkpoint())

    def cancel(self) -> None:
        """Cancel all open transactions of its producers, and take its readers back to their last
        checkpoint: they read again what came after it. If one member fails, the others are done all
        the same, and the error is raised. What could not be cancelled in time is cancelled later, and
        gets into no checkpoint."""
        self._driver.run(self._rules.cancel())

    def __enter__(self) -> CheckpointGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._driver.run(self._rules.give_up(Exception()))
            return
        sent: list[Ticket] = []
        try:
            self._driver.run(self._rules.checkpoint(sent))
        except BaseException as failure:
            self._driver.run(self._rules.give_up(failure, sent))
            raise

    def __repr__(self) -> str:
        return f"<checkpoint group of {len(self)} agents>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a checkpoint group")


def _rules_of(agent: Agent) -> rules.Member:
    if not isinstance(agent, Producer | Consumer | Subscriber):
        raise BadRequest(
            f"a group is of producers, consumers and subscribers, not {type(agent).__name__}"
        )
    return agent._rules
