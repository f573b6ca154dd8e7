"""A process that wants to lead a shard, for ever, and says what happens to it: one line of JSON each.

python -m tests.integration.cluster.contender HOSTS CLUSTER NODE SHARD TIMEOUT_S
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from tstreams.cluster import Node, SessionState
from tstreams.cluster.zookeeper import ZooKeeperCoordination, ZooKeeperSettings
from tstreams.errors import Unavailable


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def contend(hosts: str, cluster: str, node: str, shard: int, timeout_s: float) -> None:
    settings = ZooKeeperSettings(hosts=hosts, cluster=cluster, session_timeout_s=timeout_s)
    coordination = ZooKeeperCoordination(settings, Node(id=node))

    def changed(state: SessionState) -> None:
        say(state=state.value, alive=coordination.alive(), leads=coordination.leads(shard))

    coordination.on_session(changed)
    await coordination.start()
    asyncio.get_running_loop().create_task(notice_stops(coordination))
    watch = coordination.watch()
    led: int | None = None
    while True:
        try:
            epoch = await coordination.lead(shard)
        except Unavailable:
            epoch = None
        if epoch is not None and epoch != led:
            led = epoch
            say(led=epoch)
        await anext(watch)


async def notice_stops(coordination: ZooKeeperCoordination) -> None:
    """Say whether the session was believed to last at the first moment after this process stood still."""
    before = time.monotonic()
    while True:
        await asyncio.sleep(0.02)
        if time.monotonic() - before > 1.5:
            say(woke=True, alive=coordination.alive())
        before = time.monotonic()


if __name__ == "__main__":
    host, name, me, number, seconds = sys.argv[1:]
    uvloop.run(contend(host, name, me, int(number), float(seconds)))
