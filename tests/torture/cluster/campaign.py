"""The campaign against a cluster: its parts are put together, and end with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.checker.recording import Recorder
from tests.torture.campaign import Campaign, Settings
from tests.torture.cluster import cuts  # noqa: F401 - so that they are in the catalogue
from tests.torture.cluster.faults import CLUSTER
from tests.torture.cluster.network import name_hosts, network
from tests.torture.cluster.node import SESSION_S, TorturedNode
from tests.torture.cluster.servers import ENGINES, REPLICAS, SERVERS, Ensemble
from tests.torture.cluster.world import ClusterWorld
from tests.torture.namespace import disk
from tests.torture.plan import Tempo
from tests.torture.scene import Scene

TEMPO = Tempo(
    lengths_s=(0.5 * SESSION_S, 3 * SESSION_S),
    pauses_s=(0.2, 2 * SESSION_S),
    first_lengths_s=(1.3 * SESSION_S, 2 * SESSION_S),
    first_pauses_s=(0.2, 1.0),
)
"""Some faults end before anybody is missed; most do not."""
DISK_MB, DISK_MB_PER_MINUTE, DISK_MB_MAX = 256, 32, 2048
CLIENT_HOSTS = 2


def _names(role: str, count: int) -> list[str]:
    return [f"{role}-{number}" for number in range(1, count + 1)]


@contextmanager
def _world(settings: Settings, folder: Path) -> Iterator[ClusterWorld]:
    """All parts, until the end."""
    zookeepers, engines = _names("zookeeper", SERVERS), _names("engine", SERVERS)
    names = [*zookeepers, *engines, *_names("node", REPLICAS), *_names("clients", CLIENT_HOSTS)]
    with ExitStack() as stack:
        made = stack.enter_context(network(names))
        if settings.log == "bookkeeper":
            name_hosts(made, folder / "hosts")
        ensemble = Ensemble(folder, [made.hosts[it] for it in zookeepers])
        engine = ENGINES[settings.log](folder, [made.hosts[it] for it in engines], ensemble.hosts)
        megabytes = min(DISK_MB + int(DISK_MB_PER_MINUTE * settings.minutes), DISK_MB_MAX)
        nodes = {}
        for name in _names("node", REPLICAS):
            small = stack.enter_context(disk(folder / f"{name}-disk", megabytes))
            nodes[name] = TorturedNode(
                made.hosts[name], small, folder / name, ensemble.hosts, settings.mistake
            )
        scene = Scene(folder, settings.seed, Recorder(folder / "campaign.jsonl"))
        world = ClusterWorld(scene, made, ensemble, engine, nodes, settings.log)
        stack.callback(world.close)
        yield world


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Do it. The report."""
    began = time.monotonic()
    with _world(settings, folder) as world:
        campaign = Campaign(settings, world, CLUSTER, TEMPO)
        campaign.run()
        verdict = campaign.finish()
        return {
            **campaign.report(verdict),
            "minutes": settings.minutes,
            "seconds": round(time.monotonic() - began, 1),
            "seed": settings.seed,
        }
