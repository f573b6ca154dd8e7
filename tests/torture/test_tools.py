"""What a campaign breaks things with: the shim, the small disk and the cable do what they say, where they can be had."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture import shim
from tests.torture.namespace import INSIDE, way_in
from tests.torture.panel import Cell, Panel

SYNC_BOTH = """
import os, sys
for folder in ("index", "ledgers"):
    file = os.open(f"{sys.argv[1]}/{folder}/file", os.O_CREAT | os.O_WRONLY)
    for sync in (os.fsync, os.fdatasync):
        try:
            sync(file)
            print(0)
        except OSError as error:
            print(error.errno)
"""

IN_NAMESPACES = """
import socket, subprocess, sys, threading
from pathlib import Path
from tests.integration.tstreams_faults.small_disk import fill, free_bytes
from tests.torture.namespace import OURS, disk, veth

with disk(Path(sys.argv[1]) / "disk", 4) as small:
    room = free_bytes(small)
    filler = fill(small)
    print("room", 0 < room <= 4 * 2**20, free_bytes(small))
    filler.unlink()

ASK = f"import socket; s = socket.create_connection(('{OURS}', PORT), WAIT); s.settimeout(WAIT); print(s.recv(9))"

with veth() as cable, socket.create_server((OURS, 0)) as server:
    def serve():
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                return
            with link:
                link.sendall(b"hello")

    threading.Thread(target=serve, daemon=True).start()

    def ask(wait):
        code = ASK.replace("PORT", str(server.getsockname()[1])).replace("WAIT", str(wait))
        command = [*cable.prefix, sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True).stdout.decode().strip()

    print("at first", ask(30))
    cable.down(True)
    print("out", ask(0.5))
    cable.down(False)
    cable.hole(True, True)
    print("hole", ask(0.5))
    cable.hole(True, False)
    cable.hole(False, True)
    print("hole", ask(0.5))
    cable.hole(False, False)
    cable.slow(128)
    print("slow", ask(30))
    cable.slow(0)
    print("again", ask(30))
"""


def skip(reason: str) -> None:
    print(reason)
    pytest.skip(reason)


def test_the_shim_fails_syncs_of_the_index_only(tmp_path: Path) -> None:
    if reason := shim.barrier():
        skip(reason)
    for folder in ("index", "ledgers"):
        (tmp_path / folder).mkdir()
    panel = Panel(tmp_path / "panel")
    command = [*shim.build(tmp_path, panel), sys.executable, "-c", SYNC_BOTH, str(tmp_path)]

    def outcomes() -> list[int]:
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return [int(it) for it in found.stdout.split()]

    assert outcomes() == [0, 0, 0, 0]
    panel[Cell.INDEX_SYNC_ERROR] = errno.EIO
    assert outcomes() == [errno.EIO, errno.EIO, 0, 0]
    panel.heal()
    assert outcomes() == [0, 0, 0, 0]


def test_the_small_disk_and_the_cable_do_what_they_say(tmp_path: Path) -> None:
    way = way_in()
    if isinstance(way, str):
        skip(way)
    found = subprocess.run(
        [*way, sys.executable, "-c", IN_NAMESPACES, str(tmp_path)],
        check=False, capture_output=True, text=True, timeout=100, env={**os.environ, INSIDE: "1"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [
        "room True 0", "at first b'hello'", "out ", "hole ", "hole ", "slow b'hello'", "again b'hello'",
    ]  # fmt: skip
    assert list((tmp_path / "disk").iterdir()) == [], "nothing of it is seen outside"
