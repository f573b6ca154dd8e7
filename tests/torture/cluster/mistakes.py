"""Mistakes that only a node of a cluster can make, planted one at a time: the campaign must find each.

Those of the simulation can be planted into nodes too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.system.mistakes import Mistake, Patches, mistake
from tstreams.cluster.zookeeper import ZooKeeperCoordination
from tstreams.errors import Error
from tstreams.index.applier import Applier
from tstreams.ledger.port import LogFenced
from tstreams.protocol import encode
from tstreams.server.errands import Errands
from tstreams.server.shared import SharedShard
from tstreams.server.turns import Turns

CLUSTER_MISTAKES: dict[str, Mistake] = {}


LATE_S = 0.2
"""How long a group waits until it is sent to the engine, where answers or decisions do not wait for it."""


def _send_late(patches: Patches, before: Callable[[Any], None]) -> None:
    """Groups are sent a little later, and this happens before. Without the delay only a death within a few microseconds
    would show what is wrong."""

    def commit(original: Any, turns: Any) -> None:
        before(turns)
        asyncio.get_running_loop().call_later(LATE_S, original, turns)

    patches.around(Turns, "commit", commit)


@mistake(
    "answer-before-the-engine",
    "G1",
    "answers go out before a group is sent to the engine",
    among=CLUSTER_MISTAKES,
)
def _(patches: Patches) -> None:
    def answer(original: Any, turns: Any, request: Any, it: Any) -> Any:
        pending, turns.pending = turns.pending, []
        try:
            return original(turns, request, it)
        finally:
            turns.pending = pending

    patches.around(Turns, "answer", answer)
    _send_late(patches, lambda turns: None)


@mistake(
    "serve-after-the-fence",
    "G6",
    "a leader does not look at its session, and takes a refusal of the log for a confirmation",
    among=CLUSTER_MISTAKES,
)
def _(patches: Patches) -> None:
    def refuse(original: Any, shared: Any, turn: Any, error: Exception) -> None:
        if isinstance(error, LogFenced):
            answers, turn.answers = turn.answers, []
            for request, it in answers:
                if not isinstance(it, Error):
                    request.answer(encode(it))
        original(shared, turn, error)

    patches.around(ZooKeeperCoordination, "alive", lambda original, coordination: True)
    patches.around(SharedShard, "_refuse", refuse)


@mistake(
    "tell-before-it-is-durable",
    "G4",
    "participants are told of a decision before it is sent to the log",
    among=CLUSTER_MISTAKES,
)
def _(patches: Patches) -> None:
    def tell(turns: Any) -> None:
        if turns._keeper.shard.errands is not None:
            turns._keeper.shard.errands.look()

    def collected(original: Any, errands: Any, shard: int) -> Any:
        found = asyncio.get_running_loop().create_future()
        found.set_result(errands._messages_for(shard))
        return found

    _send_late(patches, tell)
    patches.around(Errands, "_collected", collected)


@mistake(
    "sweep-by-chance",
    "G7",
    "a node leaves out some of the sweeps that the leader has written down",
    among=CLUSTER_MISTAKES,
)
def _(patches: Patches) -> None:
    rng = random.SystemRandom()

    def swept(original: Any, applier: Any, record: Any, position: int, size: int) -> None:
        if rng.random() > 0.3:
            original(applier, record, position, size)

    patches.around(Applier, "_swept", swept)
