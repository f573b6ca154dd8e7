"""What nodes hold of each shard in the end: when all have read their logs to the end, it is the same to the byte.

Nothing is left out of the comparison: whatever changes an index goes through the log, and is applied at the same
position by everybody. (The log position itself is one of the facts.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.integration.replicas.sites import Site
from tests.torture.cluster.servers import SHARDS
from tests.torture.scene import tell
from tests.torture.verdict import Verdict
from tstreams.ledger.engine import Engine
from tstreams.server.engines import engine_kind
from tstreams.server.verify import verify

if TYPE_CHECKING:
    from tests.torture.cluster.world import ClusterWorld

Facts = Sequence[tuple[bytes, bytes]]
SHOWN = 5
"""Facts that are shown where they differ."""


def judge_facts(world: ClusterWorld, verdict: Verdict) -> dict[str, Any]:
    """No node runs any more. Each data folder is checked as it is; then all are opened by this process, follow until
    they have caught up, and are compared. How much there was."""
    assert world.cluster is not None
    for node in world.nodes.values():
        found = verify(node.server.data)
        verdict.findings += [f"{node.name}: {it}" for it in found.problems[:10]]
    logs = engine_kind(world.log).logs(world.cluster)

    async def connect(number: int) -> Engine:
        return await logs.open(number)

    site = Site(world.scene.folder, connect, shards=SHARDS)
    places = {
        name: str(node.server.data.relative_to(world.scene.folder))
        for name, node in world.nodes.items()
    }
    try:
        for place in places.values():
            site.start(place)
        tell("all nodes follow")
        site.caught_up(*places.values())
        sizes = {}
        for shard in range(SHARDS):
            facts = {name: site.facts(place, shard) for name, place in places.items()}
            compare_facts(shard, facts, verdict)
            sizes[str(shard)] = {name: len(it) for name, it in facts.items()}
        return sizes
    except TimeoutError:
        verdict.add("facts: the nodes do not catch up with their logs when they are opened again")
        return {}
    finally:
        for place in list(site.nodes):
            site.stop(place)
        site.run(logs.close())
        site.close()


def compare_facts(shard: int, facts: Mapping[str, Facts], verdict: Verdict) -> None:
    """All against the first."""
    first, *others = facts
    for other in others:
        if facts[first] == facts[other]:
            continue
        one, two = dict(facts[first]), dict(facts[other])
        keys = [it for it in sorted({*one, *two}) if one.get(it) != two.get(it)]
        some = [(it.hex(), _hex(one.get(it)), _hex(two.get(it))) for it in keys[:SHOWN]]
        verdict.add(
            f"facts-differ: shard {shard}: {first} and {other} differ in {len(keys)} of "
            f"{len({*one, *two})} facts: {some}"
        )


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()[:200]
