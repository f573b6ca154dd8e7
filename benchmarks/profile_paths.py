"""The four paths that `profile` looks at, each with a real server and real clients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import tstreams

from .fleet import fleet
from .interface import BenchmarkFailed
from .profile_clients import Processor, Reader, Writer
from .profile_recorder import Recorded, Target, descendants, recording
from .scratch import scratch_folder
from .servers import HOST, ServerProcess, tstreams_server
from .spark_plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLIENTS: Final = 4
SERVER, CLIENT, WORKERS = "server", "client", "workers"
_SPARK = Plan(rows=1_000_000, batches=0, rounds=1, cores=2)
_WORK_WITHIN_S = 240.0

Scene: TypeAlias = tuple[str, list[Recorded], str]
"""Its name, what was seen of each process, and what was done meanwhile."""


def fleet_path(
    name: str, make: Callable[[int], Writer | Processor], place: Path, seconds: float
) -> Iterator[Scene]:
    """Four client processes, each with a partition of its own; the server and one of them are recorded."""
    partitions = range(CLIENTS)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(place, "profile"))
        server = stack.enter_context(tstreams_server(folder))
        clients = stack.enter_context(fleet(CLIENTS))
        stack.enter_context(clients.sessions(server.check, make, server.port))
        clients.each("create", [(CLIENTS,)])
        clients.each("prepare", [(partition,) for partition in partitions])
        [pid] = clients.each("pid", [()])
        targets = [Target(SERVER, server.process.pid), Target(CLIENT, pid)]
        with recording(targets, seconds, folder) as under_way:
            work = [(partition, under_way.over) for partition in partitions]
            done = sum(clients.each("work", work, seconds + _WORK_WITHIN_S))
            found = under_way.results()
    yield name, found, f"{done} transactions of 100 items of 100 B, {CLIENTS} clients"


def spark_path(place: Path, seconds: float) -> Iterator[Scene]:
    """Rows from a stream to nowhere; then rows from memory to a stream. The server and all Python workers."""
    try:
        from .spark_session import spark_session
        from .spark_subjects import Streams, memory
    except ImportError as error:
        raise BenchmarkFailed(f"{error}: pip install 'tstreams[spark]'") from None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(place, "profile"))
        server = stack.enter_context(tstreams_server(folder))
        spark = stack.enter_context(spark_session(_SPARK.cores, folder, []))
        streams = Streams(spark, _SPARK, server.port)
        streams.fill("binary")

        def read() -> None:
            streams.read("binary").write.format("noop").mode("overwrite").save()

        def write() -> None:
            streams.write(memory(spark, _SPARK, "binary"), "binary")
            with tstreams.connect(f"tcp://{HOST}:{server.port}") as ts:
                ts.delete_stream("binary-out")

        for way, once in (("read", read), ("write", write)):
            once()  # workers start, and import what they need
            found, times = _spark_scene(spark, server, once, folder, seconds)
            yield (
                f"spark-{way}",
                found,
                f"{times * _SPARK.rows} rows of 100 B, {_SPARK.cores} cores",
            )


def _spark_scene(
    spark: SparkSession,
    server: ServerProcess,
    once: Callable[[], None],
    folder: Path,
    seconds: float,
) -> tuple[list[Recorded], int]:
    targets = [Target(SERVER, server.process.pid)]
    for number, pid in enumerate(_worker_daemons(spark), 1):
        targets.append(Target(f"{WORKERS}-{number}", pid, with_children=True))
    times = 0
    with recording(targets, seconds, folder) as under_way:
        while not under_way.over.exists():
            once()
            times += 1
        server.check()
        first, *others = under_way.results()
    return [first, _together(others)], times


def _together(recorded: list[Recorded]) -> Recorded:
    return Recorded(
        WORKERS,
        "".join(it.folded for it in recorded),
        sum(it.cpu_s for it in recorded),
        recorded[0].seconds,
    )


def _worker_daemons(spark: SparkSession) -> list[int]:
    """The processes whose forks are the Python workers of tasks. Those that only plan are not among them."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    found: list[int] = []
    forks: set[int] = set()
    for pid in descendants(gateway.proc.pid):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[-3:-1] == [b"pyspark.daemon", b"pyspark.worker"] and pid not in forks:
                found.append(pid)
                forks.update(descendants(pid))
    if not found:
        raise BenchmarkFailed("Spark has no pyspark.daemon: its workers cannot be found")
    return found


PATHS: Final[dict[str, Callable[[Path, float], Iterator[Scene]]]] = {
    "write": partial(fleet_path, "write", Writer),
    "read": partial(fleet_path, "read", Reader),
    "pipeline": partial(fleet_path, "pipeline", Processor),
    "spark": spark_path,
}
