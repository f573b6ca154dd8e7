"""How fast one writer appends, one group at a time, on three bookies and on three NATS servers, in alternating rounds.

    python -m tests.integration.log.rates [ROUNDS]

All servers sync every write. Prints groups a second, the median of the rounds, and the ratio within rounds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

import uvloop

from tests.integration.engines import Servers
from tests.integration.replicas.sites import connect_to, where
from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.cluster.engines.nats import NatsServers
from tstreams.ledger.files import RealFolder
from tstreams.ledger.replicated import ReplicatedLog

SIZES = {"10 kB": 10_000, "100 kB": 100_000, "1 MiB": 1 << 20}
ROUND_S = 3.0


async def rate(log: ReplicatedLog, size: int) -> float:
    data, count = bytes(size), 0
    begun = time.perf_counter()
    while (took := time.perf_counter() - begun) < ROUND_S:
        await log.append([[data]], 0)
        count += 1
    return count / took


async def measure(folder: Path, servers: dict[str, Servers], rounds: int) -> None:
    logs, engines = {}, []
    for name, found in servers.items():
        engine = await connect_to(where(found, uuid.uuid4().hex[:12]))(0)
        engines.append(engine)
        logs[name] = await ReplicatedLog.open(engine, RealFolder(folder / f"mirror-{name}"))
        await logs[name].take_over(1, 0)
        await rate(logs[name], 1000)  # Java is slow at first
    for label, size in SIZES.items():
        rates: dict[str, list[float]] = {name: [] for name in logs}
        for _ in range(rounds):
            for name, log in logs.items():
                rates[name].append(await rate(log, size))
        pairs = zip(rates["bookkeeper"], rates["jetstream"], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        said = ", ".join(f"{name} {statistics.median(it):.0f}/s" for name, it in rates.items())
        print(f"{label}: {said}; BookKeeper is {ratio:.2f} times JetStream", flush=True)
    for log in logs.values():
        await log.close()
    for engine in engines:
        await engine.close()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with (
        tempfile.TemporaryDirectory() as folder,
        Bookies(Path(folder) / "bookies") as bookies,
        NatsServers(Path(folder) / "nats") as nats,
    ):
        servers: dict[str, Servers] = {"bookkeeper": bookies, "jetstream": nats}
        uvloop.run(measure(Path(folder), servers, rounds))


if __name__ == "__main__":
    main()
