"""The process of one shard: `python -m tstreams.server.shard_child`. `tstreams serve --shards` starts it, tells it what to
do over a pipe, and ends it. If whoever started it ends, so does it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from ..errors import Error, Unavailable
from ..logs import configure
from .reins import (
    Know,
    Measure,
    Numbers,
    Reins,
    Serving,
    end_with,
    read_to_shard,
    refusal_of,
)
from .shard import Clock, system_clock
from .shard_node import ShardNode

log = logging.getLogger("tstreams.server")

REFUSED = 1
"""The exit status of a process that has said why it cannot serve."""


def main(clock: Clock = system_clock) -> int:
    """Serve until told to stop; the exit status."""
    reins = Reins()
    try:
        orders = reins.orders()
        end_with(orders.parent)
    except EOFError:
        return REFUSED
    config = orders.config
    configure(config.log_level, config.log_format, shard=orders.shard, process=os.getpid())
    node = ShardNode(config, orders.listen, shard=orders.shard, node=orders.node, clock=clock)
    serving = False
    listening: list[asyncio.Task[None]] = []

    def ready() -> None:
        nonlocal serving
        serving = True
        listening.append(asyncio.get_running_loop().create_task(_listen(reins, node)))
        reins.say(Serving(node.addresses, node.epoch))

    try:
        node.run(on_ready=ready)
    except Error as error:
        reins.say(refusal_of(error))
        return REFUSED
    except OSError as error:
        if serving:
            raise
        where = error.filename or ", ".join(orders.listen)
        text = f"shard {orders.shard} cannot be served: {where}: {error.strerror or error}"
        reins.say(refusal_of(Unavailable(text)))
        return REFUSED
    return 0


async def _listen(reins: Reins, node: ShardNode) -> None:
    """Do what the parent says, until it ends."""
    reader = await reins.heard()
    while line := await reader.readline():
        match read_to_shard(line):
            case Know(known):
                node.node = known
            case Measure():
                reins.say(Numbers(node.measure()))
    log.error("the process that started this one has ended: ending too")
    node.request_stop()


if __name__ == "__main__":
    sys.exit(main())
