"""Three servers: one that leads is lost, the majority is lost and comes back. Epochs only rise."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tstreams.cluster import Node, SessionState
from tstreams.cluster.engines.zookeeper import ZooKeeperEnsemble
from tstreams.cluster.zookeeper import ZooKeeperCoordination
from tstreams.errors import Unavailable

from .conftest import eventually
from .opening import ZooKeeperOpener, states_of
from .witness import Witness

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("zookeeper-ensemble")]

SHORT_S = 3.0


@pytest.fixture
def ensemble(can_start_zookeeper: None, tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    ensemble = ZooKeeperEnsemble(tmp_path)
    ensemble.start()
    yield ensemble
    ensemble.stop()


@pytest.fixture
async def nodes(ensemble: ZooKeeperEnsemble) -> AsyncIterator[ZooKeeperOpener]:
    opener = ZooKeeperOpener(ensemble.hosts, f"c{os.getpid()}")
    yield opener
    await opener.close()


async def take_turns(one: ZooKeeperCoordination, name: str, witness: Witness) -> None:
    """Lead shard 0 whenever it is free, and give it up at once."""
    while True:
        try:
            epoch = await one.lead(0)
            if epoch is not None:
                witness.led(epoch, name)
                await one.release(0)
        except Unavailable:
            pass
        await asyncio.sleep(0.02)


async def test_servers_are_lost_and_come_back(
    ensemble: ZooKeeperEnsemble, nodes: ZooKeeperOpener, witness: Witness
) -> None:
    await nodes.create()
    witness.begin()
    steady = await nodes.open(Node(id="steady"))
    steady_states = states_of(steady)
    assert await steady.lead(1) == 1
    brief = await nodes.open(Node(id="brief"), SHORT_S)
    assert await brief.lead(2) == 1
    turning = [
        asyncio.ensure_future(take_turns(one, name, witness))
        for one, name in ((steady, "steady"), (brief, "brief"))
    ]
    await eventually(lambda: witness.epochs and witness.epochs[-1] > 5)

    leader = await eventually(ensemble.leader)
    leader.kill()
    last = witness.epochs[-1]
    await eventually(lambda: witness.epochs[-1] > last + 5)  # the other two go on
    assert ensemble.leader() not in (None, leader)
    assert steady.leads(1) == 1
    await asyncio.to_thread(leader.start)

    killed = ensemble.servers[:2]
    for server in killed:
        server.kill()
    await eventually(lambda: brief.session is SessionState.LOST)  # nobody is there who could say so
    assert brief.leads(2) is None
    assert not brief.alive()
    assert steady.session is SessionState.SUSPENDED
    assert steady.leads(1) == 1
    last = witness.epochs[-1]
    for server in killed:
        server.launch()
    await asyncio.gather(*(asyncio.to_thread(server.wait) for server in killed))
    await eventually(lambda: steady.session is SessionState.CONNECTED)
    await eventually(lambda: brief.session is SessionState.CONNECTED)
    again = await brief.lead(2)
    assert again is not None
    assert again > 1
    await eventually(lambda: witness.epochs[-1] > last + 5)
    assert steady.leads(1) == 1
    assert SessionState.LOST not in steady_states

    for task in turning:
        task.cancel()
    await asyncio.gather(*turning, return_exceptions=True)
    assert set(witness.leaders.values()) == {"steady", "brief"}
