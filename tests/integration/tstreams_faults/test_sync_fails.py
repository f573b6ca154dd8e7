"""A failed fdatasync: the shard stops, nothing is acknowledged any more, and a restart has all that was."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

import tstreams
from tests.crash.server import KilledServer
from tstreams.server.verify import verify

FAILING_SERVER = [sys.executable, "-m", "tests.integration.tstreams_faults.failing_server"]
FAILPOINT = "posix/io/sync/fdatasync"
EIO = 5

Switch = Callable[[bool], None]
"""Lets the disk fail, or work again."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KilledServer]:
    server = KilledServer(tmp_path / "data")
    yield server
    server.close()


def in_our_own_files(server: KilledServer, what: str) -> Switch:
    """Failures in the port through which the log sees files."""
    fails = server.data.parent / "fails"
    server.command = [*FAILING_SERVER, "--fails", str(fails)]

    def switch(failing: bool) -> None:
        if failing:
            beside = fails.with_name("fails-soon")
            beside.write_text(what)
            beside.rename(fails)
        else:
            fails.unlink()

    return switch


def in_the_system(server: KilledServer, what: str) -> Switch:
    """Failures between the C library and the kernel, by libfiu."""
    if shutil.which("fiu-run") is None:
        reason = "libfiu is not installed (Debian: fiu-utils); failures in our own files are tested"
        print(reason)
        pytest.skip(reason)
    control = str(server.data.parent / "fiu")
    server.command = ["fiu-run", "-x", "-f", control, *server.command]

    def switch(failing: bool) -> None:
        command = f"enable name={FAILPOINT},failinfo={EIO}" if failing else f"disable {FAILPOINT}"
        process = str(server.pid)
        subprocess.run(["fiu-ctrl", "-f", control, "-c", command, process], check=True, timeout=30)

    return switch


def outcomes(futures: list[Future[int]]) -> list[BaseException | None]:
    return [future.exception(timeout=60) for future in futures]


def items_of(transactions: list[tstreams.ReadTransaction]) -> list[list[bytes]]:
    return [list(it.items) for it in transactions]


@pytest.mark.parametrize(
    ("where", "what"),
    [(in_our_own_files, "sync"), (in_our_own_files, "write"), (in_the_system, "sync")],
    ids=["our-sync", "our-write", "libfiu"],
)
def test_a_disk_that_fails(
    server: KilledServer, where: Callable[[KilledServer, str], Switch], what: str
) -> None:
    switch = where(server, what)
    server.start()
    with tstreams.connect(server.url) as ts:
        ts.create_stream("s", ttl="1d")
        producer = ts.producer("s", name="p")
        safe = [[b"%d" % n, bytes(1000)] for n in range(50)]
        for items in safe:
            producer.instant(items)
        open_one = producer.open()
        open_one.send_many([b"of an open one"])
        with ts.consumer("s", name="before") as consumer:
            assert items_of(list(consumer.read(max_wait=0.3))) == safe

        switch(True)
        futures = [producer.instant([b"unknown %d" % n], wait=False) for n in range(50)]
        for error in outcomes(futures):
            assert isinstance(error, tstreams.Unavailable)
            assert not isinstance(error, tstreams.Timeout)
            assert "Stop the server, check the disk, and start it again" in error.message
        switch(False)

        attempts: list[Callable[[], object]] = [
            lambda: producer.instant([b"later"]),
            open_one.checkpoint,
            lambda: ts.create_stream("another"),
            lambda: ts.stream("s"),
            lambda: ts.consumer("s"),
        ]
        for attempt in attempts:
            with pytest.raises(tstreams.Unavailable, match="check the disk"):
                attempt()
    server.stop()

    server.start()
    with tstreams.connect(server.url) as ts:
        with ts.producer("s", name="p") as producer:  # fences the first, and ends what it had open
            producer.instant([b"after"])
        with ts.consumer("s", name="after") as consumer:
            seen = items_of(list(consumer.read(max_wait=0.3)))
    assert seen[: len(safe)] == safe
    assert seen[-1] == [b"after"]
    unknown = seen[len(safe) : -1]
    assert unknown == [[b"unknown %d" % n] for n in range(len(unknown))], "in order, or not at all"
    assert server.stop() == 0
    assert verify(server.data).problems == []
