"""What goes wrong with one server, its disk, its clock, and the links to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.integration.tstreams_faults.small_disk import fill
from tests.torture.client_faults import add_client_faults
from tests.torture.failpoints import (
    AT_START,
    AT_STOP,
    AT_WORK,
    BROKEN,
    NO_ROOM,
    POINTS,
    SELDOM,
    number_of,
)
from tests.torture.kinds import Catalogue, Deal
from tests.torture.panel import Cell
from tests.torture.proxy import Way
from tests.torture.world import World

POINT_S_MAX = {AT_WORK: 6.0, SELDOM: 15.0, AT_START: 30.0, AT_STOP: 30.0}
"""How long the server may take to come to a failpoint, before it is left alone."""
CLOCK_STEPS_S = (-4 * 3600, -1000, -61, -5, 3, 61, 1000, 4 * 3600)
"""A lease is a second, a session lives for 15 minutes, a stream for a day."""
CLOCK_MS_MAX = 6 * 3600 * 1000
STORM_CONNECTIONS = 300


SERVER: Catalogue[World] = Catalogue()
"""Against one server."""
fault = SERVER.fault
add_client_faults(SERVER)


# The server's process.


@fault("kill-server", "server", mortal=True, weight=2)
def kill_server(world: World, deal: Deal) -> Iterator[str]:
    """SIGKILL at any moment; at times again while it recovers."""
    world.server.kill()
    times = 1 + int(deal.amount * 3)
    for _ in range(times - 1):
        world.server.start(wait=False)
        time.sleep(deal.pick)
        world.server.kill()
    world.server.start()
    yield f"{times} times"


@fault("failpoint", "server", mortal=True, weight=9)
def failpoint(world: World, deal: Deal) -> Iterator[str]:
    """SIGKILL at a certain place of the program."""
    panel, server, number = world.panel, world.server, number_of(deal.point)
    panel[Cell.HIT] = 0
    when = POINTS[deal.point]
    if when == AT_START:
        server.kill()
    panel[Cell.SKIPS] = int(deal.amount * 20) if when == AT_WORK else 0
    panel[Cell.ARMED] = number
    if when == AT_START:
        server.start(wait=False)
    elif when == AT_STOP:
        server.terminate()
    dead = server.wait_until_dead(POINT_S_MAX[when])
    panel[Cell.ARMED] = 0
    reached = panel[Cell.HIT] == number
    (world.hits if reached else world.missed)[deal.point] += 1
    if dead and not reached:
        world.scene.complain(f"the server ended before {deal.point}: {server.log_tail()}")
    if not server.is_alive:
        server.start()
    else:
        server.wait_until_ready()
    yield deal.point if reached else f"{deal.point}, not reached"


@fault("restart-server", "server", mortal=True)
def restart_server(world: World, deal: Deal) -> Iterator[str]:
    """SIGTERM, and a start."""
    if (status := world.server.stop()) != 0:
        world.scene.complain(f"SIGTERM ended the server with {status}: {world.server.log_tail()}")
    time.sleep(deal.pick)
    world.server.start()
    yield ""


@fault("stop-server", "server")
def stop_server(world: World, deal: Deal) -> Iterator[str]:
    """SIGSTOP, for longer than leases last."""
    os.kill(world.server.pid, signal.SIGSTOP)
    try:
        yield f"{deal.length_s:.1f} s"
    finally:
        os.kill(world.server.pid, signal.SIGCONT)


# The server's disk and clock.


@fault("sync-fails", "server", mortal=True)
def sync_fails(world: World, deal: Deal) -> Iterator[str]:
    """fdatasync of the log reports EIO: the server stops serving until it is started again."""
    world.panel[Cell.SYNC_ERROR] = BROKEN
    try:
        yield ""
    finally:
        world.panel[Cell.SYNC_ERROR] = 0
        world.server.kill()
        world.server.start()


@fault("flush-fails", "server")
def flush_fails(world: World, deal: Deal) -> Iterator[str]:
    """The index cannot be flushed: the server recovers by itself."""
    world.panel[Cell.FLUSH_ERROR] = BROKEN
    try:
        yield ""
    finally:
        world.panel[Cell.FLUSH_ERROR] = 0


@fault("index-sync-fails", "server", needs="shim")
def index_sync_fails(world: World, deal: Deal) -> Iterator[str]:
    """fsync and fdatasync report EIO to RocksDB: the index cannot be opened again before that ends."""
    world.panel[Cell.INDEX_SYNC_ERROR] = BROKEN
    try:
        yield ""
    finally:
        world.panel[Cell.INDEX_SYNC_ERROR] = 0


@fault("no-room", "server")
def no_room(world: World, deal: Deal) -> Iterator[str]:
    """Writes of the log end half way, with ENOSPC, as with a quota."""
    world.panel[Cell.WRITE_ERROR] = NO_ROOM
    try:
        yield ""
    finally:
        world.panel[Cell.WRITE_ERROR] = 0


@fault("disk-full", "server", needs="disk")
def disk_full(world: World, deal: Deal) -> Iterator[str]:
    """Somebody else takes all the room that there is, and gives it back."""
    assert world.disk is not None
    filler = fill(world.disk)
    try:
        yield ""
    finally:
        filler.unlink()


@fault("slow-disk", "server")
def slow_disk(world: World, deal: Deal) -> Iterator[str]:
    """Each write and sync of the log takes up to 50 ms longer."""
    world.panel[Cell.SLOW_US] = 1000 + int(deal.amount * 49_000)
    try:
        yield f"{world.panel[Cell.SLOW_US] / 1000:.0f} ms"
    finally:
        world.panel[Cell.SLOW_US] = 0


@fault("clock-step", "server")
def clock_step(world: World, deal: Deal) -> Iterator[str]:
    """The server's clock jumps, and stays so."""
    step_ms = CLOCK_STEPS_S[int(deal.pick * len(CLOCK_STEPS_S))] * 1000
    if abs(world.panel[Cell.CLOCK_MS] + step_ms) > CLOCK_MS_MAX:
        step_ms = -step_ms
    world.step_clock(step_ms)
    yield f"{step_ms // 1000:+d} s"


# Strangers.


@fault("storm", "others")
def storm(world: World, deal: Deal) -> Iterator[str]:
    """Hundreds of connections come and go."""
    connections = int(STORM_CONNECTIONS * (0.3 + 0.7 * deal.amount))
    command = [sys.executable, "-m", "tests.torture.storm", world.server.url]
    command += ["--connections", f"{connections}", "--seed", f"{int(deal.pick * 1e6)}"]
    with (world.scene.folder / "storm.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"{connections} connections"
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            world.scene.rest(0.1)
        if process.poll() != 0:
            said = (world.scene.folder / "storm.log").read_text(errors="replace")[-1000:]
            world.scene.complain(f"the storm ended with {process.poll()}: {said}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


# Links.


@fault("link-delay", "others")
def link_delay(world: World, deal: Deal) -> Iterator[str]:
    """What goes over the link takes up to 0.3 s more."""
    world.proxy.weather.delay_s_max = 0.02 + 0.28 * deal.amount
    try:
        yield f"{world.proxy.weather.delay_s_max:.2f} s"
    finally:
        world.proxy.heal()


@fault("link-cut", "others")
def link_cut(world: World, deal: Deal) -> Iterator[str]:
    """All connections of the link break, and new ones are refused for a while."""
    world.proxy.weather.refuses = True
    world.proxy.cut()
    try:
        yield ""
    finally:
        world.proxy.heal()


@fault("link-hole", "others")
def link_hole(world: World, deal: Deal) -> Iterator[str]:
    """What goes one way over the link is lost, or both ways."""
    holes = [{Way.UP}, {Way.DOWN}, {Way.UP, Way.DOWN}][int(deal.pick * 3)]
    world.proxy.weather.holes = frozenset(holes)
    try:
        yield " and ".join(sorted(it.value for it in holes))
    finally:
        world.proxy.heal()


@fault("cable-out", "others", needs="cable")
def cable_out(world: World, deal: Deal) -> Iterator[str]:
    """Nothing passes between two network namespaces, and nobody is told."""
    assert world.cable is not None
    world.cable.down(True)
    try:
        yield ""
    finally:
        world.cable.down(False)


@fault("cable-slow", "others", needs="cable")
def cable_slow(world: World, deal: Deal) -> Iterator[str]:
    """Little passes between two network namespaces; what is too much is dropped."""
    assert world.cable is not None
    kilobits = 64 + int(448 * deal.amount)
    world.cable.slow(kilobits)
    try:
        yield f"{kilobits} kbit/s"
    finally:
        world.cable.slow(0)


@fault("cable-hole", "others", needs="cable")
def cable_hole(world: World, deal: Deal) -> Iterator[str]:
    """What goes one way between two network namespaces is lost."""
    assert world.cable is not None
    to_clients = deal.pick < 0.5
    world.cable.hole(to_clients, True)
    try:
        yield "to the clients" if to_clients else "to the server"
    finally:
        world.cable.hole(to_clients, False)


# The query.


@fault("kill-driver", "others", needs="spark")
def kill_driver(world: World, deal: Deal) -> Iterator[str]:
    """SIGKILL for the driver of the query on Spark, with its Java."""
    assert world.spark is not None
    world.spark.kill()
    world.spark.start()
    yield ""


@fault("kill-worker", "others", needs="spark")
def kill_worker(world: World, deal: Deal) -> Iterator[str]:
    """SIGKILL for one of its Python workers, if there is one."""
    assert world.spark is not None
    yield "killed" if world.spark.kill_worker() else "there was none"
