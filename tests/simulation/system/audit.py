"""The beginning and the end of a run: streams are made, and all that is there in the end is looked at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.system import actor
from tests.simulation.system.agents import LEASE_S, SimulatedProducer, SimulatedReader
from tstreams import errors

if TYPE_CHECKING:
    from tests.simulation.system.run import Run

WITHIN_S = 120.0
"""How long one of these steps may take, when nothing is wrong any more."""


def prepare(run: Run) -> None:
    """Make the streams of the plan."""

    async def make(ts: Any) -> None:
        for stream in run.plan.streams:
            made = await ts.create_stream(stream.name, stream.partitions, stream.ttl_ms / 1000)
            run.labels[stream.name] = f"{made.name}#{made.id}"

    _do(run, "maker", make)


def conclude(run: Run) -> None:
    """Look at everything; again after a crash; and let a bit rot, if the plan says so."""
    run.scheduler.run_until(lambda: run.machine.serves, WITHIN_S, "serving again")

    async def fence(ts: Any) -> None:
        for stream, name in run.names:
            try:
                await (await SimulatedProducer.begin(run.recorder, ts, stream, name)).close()
            except errors.NotFound:
                continue
        await look(ts)

    async def look(ts: Any) -> None:
        for stream in await ts.streams():
            await _read_all(run, ts, stream.name)

    _nothing_stays_open(run)
    _do(run, "auditor1", fence)
    _check_shard(run)
    before = _contents(run)
    run.machine.down_us = 1000
    run.machine.lose_power("at the end")
    run.scheduler.run_until(lambda: run.machine.serves, WITHIN_S, "serving after a power cut")
    _do(run, "auditor2", look)
    _check_shard(run)
    _compare(run, before, _contents(run))
    if run.plan.rots:
        _rot(run)


def _nothing_stays_open(run: Run) -> None:
    """All clients are gone: what they left open ends by itself, and holds nobody up for ever."""
    until_us = run.scheduler.now_us + round((actor.STAGING_S + LEASE_S + 2) * 1e6)
    run.scheduler.run_until(lambda: run.scheduler.now_us >= until_us, WITHIN_S, "waiting")
    left = sorted(it for shard in run.machine.shards for it in shard.core.state.open)
    if left:
        run.problems.append(f"open: {left} have outlived their clients and their leases")


def _do(run: Run, name: str, work: Callable[[Any], Awaitable[None]]) -> None:
    done: list[bool] = []

    async def client() -> None:
        try:
            ts = await actor.connect()
            await work(ts)
            await ts.close()
        except Exception as error:
            run.scheduler.complain(f"{name}: {error!r}", error)
        done.append(True)

    process = run.scheduler.start(name, name)
    process.spawn(client())
    run.scheduler.run_until(lambda: bool(done), WITHIN_S, f"what {name} does")
    run.network.process_died(process, loudly=True)
    run.scheduler.end(process)


async def _read_all(run: Run, ts: Any, stream: str) -> None:
    try:
        reader = await SimulatedReader.begin(run.recorder, ts, stream, "auditor", resume=False)
        for partition in reader.partitions:
            while await reader.get(partition, 0.0) is not None:
                pass
        await reader.close()
    except errors.Corrupt:
        if not run.plan.rots:
            raise


def _check_shard(run: Run) -> None:
    """What the server has in memory, in its index and in its ledgers agrees."""
    from tests.simulation.checks import live_bytes_are_what_is_referred_to

    for shard in run.machine.shards:
        try:
            live_bytes_are_what_is_referred_to(shard)
        except AssertionError as error:
            run.problems.append(f"index: {error}")


def _contents(run: Run) -> list[dict[bytes, bytes]]:
    """What of the indexes is the same before and after a crash."""
    stores: list[Any] = [shard.index.store for shard in run.machine.shards]
    return [
        {key: value for key, value in store.scan(b"") if key[:1] in (b"C", b"M")}
        for store in stores
    ]


def _compare(
    run: Run, all_before: list[dict[bytes, bytes]], all_after: list[dict[bytes, bytes]]
) -> None:
    """Offsets survive a crash, whoever asked for them."""
    for before, after in zip(all_before, all_after, strict=True):
        _compare_shard(run, before, after)


def _compare_shard(run: Run, before: dict[bytes, bytes], after: dict[bytes, bytes]) -> None:
    for key, value in before.items():
        lives = b"M" + key[1:9] in after  # else the sweeper removes them, as time allows
        if key[:1] == b"C" and lives and after.get(key) != value:
            run.problems.append(f"recovery: {key!r} was {value!r}, and is {after.get(key)!r}")


def _rot(run: Run) -> None:
    """A flipped bit is found: what is read is right, or refused."""
    if run.machine.rot() is None:
        return
    run.faults_seen["rot"] += 1

    async def look(ts: Any) -> None:
        for stream in await ts.streams():
            await _read_all(run, ts, stream.name)

    _do(run, "auditor3", look)
