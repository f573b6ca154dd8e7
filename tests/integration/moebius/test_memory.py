"""A gigabyte to a reader that stops reading: the server's memory stays where it was."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from moebius import Client

MIB = 1024 * 1024

PROGRAM = """
import sys
from moebius import Router, Server
router = Router()
item = bytes(64 * 1024)

@router.command("gigabyte")
def gigabyte(request):
    for _ in range(16 * 1024):
        yield item

router.command("echo")(lambda request: request.payload)
router.on_start(lambda server: print(*server.addresses, flush=True))
Server(router, sys.argv[1:]).run()
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[psutil.Process, list[str]]]:
    program = tmp_path / "gigabyte.py"
    program.write_text(PROGRAM)
    addresses = ["tcp://127.0.0.1:0", "zmq+tcp://127.0.0.1:0", f"ipc://{tmp_path}/x.sock"]
    command = [sys.executable, str(program), *addresses]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield psutil.Process(server.pid), server.stdout.readline().split()
        finally:
            server.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1, 2], ids=["tcp", "zmq", "ipc"])
def test_a_gigabyte_to_a_reader_that_pauses(
    process: tuple[psutil.Process, list[str]], index: int
) -> None:
    server, urls = process
    with Client(urls[index]) as client, Client(urls[index]) as other:
        client.call("echo", b"x")
        before = server.memory_info().rss
        peak = received = 0
        paused = False
        for item in client.stream("gigabyte"):
            received += len(item)
            if not paused and received >= 100 * MIB:
                paused = True
                until = time.monotonic() + 5
                while time.monotonic() < until:
                    assert other.call("echo", b"x") == b"x"
                    peak = max(peak, server.memory_info().rss)
                    time.sleep(0.05)
            elif received % (16 * MIB) == 0:
                peak = max(peak, server.memory_info().rss)
        assert received == 1024 * MIB
        assert peak - before < 64 * MIB
