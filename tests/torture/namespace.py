"""Where a campaign runs: in namespaces of its own, if that can be had. Mounts, links and processes end with it.

    ours (loopback, 10.77.0.1) ---- veth ---- theirs (10.77.0.2)

The server and most clients are in ours, some clients in theirs. Nothing of it can be seen from outside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

INSIDE = "TSTREAMS_TORTURE_INSIDE"
OURS, THEIRS = "10.77.0.1", "10.77.0.2"
_UNSHARE = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
PROBE = """
mount -t tmpfs tstreams-probe /mnt && ip link add ours type veth peer theirs &&
tc qdisc add dev ours root tbf rate 64kbit burst 16kb latency 400ms
"""
CLUSTER_PROBE = """
mount -t tmpfs tstreams-probe /mnt && ip link add probe type bridge &&
ip link add ours type veth peer theirs && ip link set ours master probe up
"""
_TOOLS = ("unshare", "nsenter", "ip", "tc", "mount")


def way_in(probe: str = PROBE) -> list[str] | str:
    """What a command has to begin with to run in namespaces of its own, in which all that `probe` does can be done, or why
    it cannot."""
    missing = [it for it in _TOOLS if shutil.which(it) is None]
    if missing:
        return f"{', '.join(missing)} cannot be found"
    reason = ""
    for who in ([], ["--user", "--map-root-user"]):
        found = subprocess.run(
            ["unshare", *who, *_UNSHARE, "sh", "-c", probe],
            check=False, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        if found.returncode == 0:
            return ["unshare", *who, *_UNSHARE]
        reason = found.stderr.strip()
    return f"no namespaces of our own: {reason}"


def run_inside(way: Sequence[str], arguments: Sequence[str], folder: str) -> int:
    """Run the campaign there, with this folder for what is temporary. Its exit code."""
    command = [*way, sys.executable, "-m", "tests.torture", *arguments]
    environment = {**os.environ, INSIDE: "1", "TMPDIR": folder, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(command, check=False, env=environment).returncode


def run_command(*command: str, given: str = "") -> None:
    """Run it, with this as its input; `RuntimeError` if it fails, with what it says."""
    found = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=30, input=given
    )
    if found.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {found.stderr.strip()}")


@contextmanager
def disk(path: Path, megabytes: int) -> Iterator[Path]:
    """A small disk."""
    path.mkdir()
    run_command("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tstreams-torture", str(path))
    try:
        yield path
    finally:
        run_command("umount", "--lazy", str(path))


@dataclass(slots=True)
class Veth:
    """A cable between two network namespaces, that can be pulled out, or made bad."""

    _theirs: int
    """The process that keeps their namespace."""

    @property
    def prefix(self) -> list[str]:
        """What a command begins with to run at the other end."""
        return ["nsenter", f"--net=/proc/{self._theirs}/ns/net"]

    def _there(self, *command: str) -> None:
        run_command(*self.prefix, *command)

    def plug(self) -> None:
        """Lay the cable."""
        run_command(
            "ip",
            "link",
            "add",
            "ours",
            "type",
            "veth",
            "peer",
            "theirs",
            "netns",
            f"{self._theirs}",
        )
        run_command("ip", "addr", "add", f"{OURS}/24", "dev", "ours")
        run_command("ip", "link", "set", "ours", "up")
        self._there("ip", "link", "set", "lo", "up")
        self._there("ip", "addr", "add", f"{THEIRS}/24", "dev", "theirs")
        self._there("ip", "link", "set", "theirs", "up")

    def down(self, is_down: bool) -> None:
        """Nothing passes, and nobody is told."""
        run_command("ip", "link", "set", "ours", "down" if is_down else "up")

    def slow(self, kilobits: int) -> None:
        """So many bits in a second, each way. 0: as fast as it can."""
        for run, end in ((run_command, "ours"), (self._there, "theirs")):
            if kilobits:
                rate = ["rate", f"{kilobits}kbit", "burst", "16kb", "latency", "400ms"]
                run("tc", "qdisc", "add", "dev", end, "root", "tbf", *rate)
            else:
                run("tc", "qdisc", "del", "dev", end, "root")

    def hole(self, to_clients: bool, is_there: bool) -> None:
        """Everything that goes one way is lost."""
        run, where = (run_command, THEIRS) if to_clients else (self._there, OURS)
        run("ip", "route", "add" if is_there else "del", "blackhole", f"{where}/32")


@contextmanager
def veth() -> Iterator[Veth]:
    """A cable to a namespace that lives as long as this does."""
    run_command("ip", "link", "set", "lo", "up")
    command = ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()  # it is there
        cable = Veth(holder.pid)
        cable.plug()
        yield cable
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()
