"""Mistakes that only a node of a cluster can make, planted one at a time: the campaign must find each.

Those of the simulation can be planted into nodes too.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.simulation.system.mistakes import Mistake, Patches, mistake
from tstreams.cluster.zookeeper import ZooKeeperCoordination
from tstreams.errors import Error
from tstreams.index.applier import Applier
from tstreams.ledger.jetstream import JetStreamEngine
from tstreams.ledger.port import LogFenced
from tstreams.protocol import encode
from tstreams.server.errands import Errands
from tstreams.server.shared import SharedShard
from tstreams.server.turns import Turns

CLUSTER_MISTAKES: dict[str, Mistake] = {}


LATE_S = 0.2
"""How long an engine takes more, where answers or decisions do not wait for it."""


def _slow_engine(patches: Patches) -> None:
    """Without this only a death within a few milliseconds would show what is wrong."""

    async def append(original: Any, engine: Any, entry: Any, expected: Any) -> Any:
        await asyncio.sleep(LATE_S)
        return await original(engine, entry, expected)

    patches.around(JetStreamEngine, "append", append)


@mistake(
    "answer-before-the-engine",
    "G1",
    "answers go out before the engine has confirmed what they say",
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
    _slow_engine(patches)


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
    "participants are told of a decision before the engine has confirmed it",
    among=CLUSTER_MISTAKES,
)
def _(patches: Patches) -> None:
    def write(original: Any, shared: Any, turn: Any) -> None:
        original(shared, turn)
        if shared.shard.errands is not None:
            shared.shard.errands.look()

    def collected(original: Any, errands: Any, shard: int) -> Any:
        found = asyncio.get_running_loop().create_future()
        found.set_result(errands._messages_for(shard))
        return found

    patches.around(SharedShard, "write", write)
    _slow_engine(patches)
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
