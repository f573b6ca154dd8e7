"""Processes that outlive whoever started them: known by their ids and by when they began, so that none is ever confused
with another that has got its number."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

MARK = "TSTREAMS_DEVELOPMENT_FOLDER"
"""In the environment of all that belongs to a folder: what was started a moment before its starter died is found by it."""
END_S = 20.0
"""How long a process may take to end when it is asked to; then it is made to."""
_LOOK_S = 0.02
_PROC = Path("/proc")


class Started(msgspec.Struct, frozen=True):
    """A process that was started."""

    pid: int
    began: str
    """When, as the system tells it: the same number with another time is another process."""


def started(pid: int) -> Started:
    """A process that runs at this moment."""
    return Started(pid, _began(pid))


def is_running(process: Started | None) -> bool:
    """Whether this process still runs, and no other one under its number."""
    if process is None:
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)  # if it was ours, and has ended
    return bool(process.began) and _began(process.pid) == process.began


def _began(pid: int) -> str:
    """When a process began; empty: there is none, or only what is left of one."""
    if _PROC.joinpath("self").exists():
        try:
            fields = _PROC.joinpath(str(pid), "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in ("Z", "X") else fields[19]
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, began = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else began.strip()


def end(processes: Iterable[Started], within_s: float = END_S) -> list[Started]:
    """Ask processes to end, all at once, and wait for them. Those that had to be made to end."""
    left = [it for it in processes if is_running(it)]
    for process in left:
        _send(process, signal.SIGTERM)
        _send(process, signal.SIGCONT)  # one that is stopped would not hear it
    left = _wait(left, within_s)
    for process in left:
        _send(process, signal.SIGKILL)
    _wait(left, within_s)
    return left


def _wait(processes: list[Started], within_s: float) -> list[Started]:
    deadline = time.monotonic() + within_s
    while processes := [it for it in processes if is_running(it)]:
        if time.monotonic() > deadline:
            return processes
        time.sleep(_LOOK_S)
    return []


def _send(process: Started, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if is_running(process):
            os.kill(process.pid, number)


def marked(folder: Path) -> list[Started]:
    """All processes of this user that carry the mark of a folder. Only Linux tells; elsewhere there are none."""
    wanted = f"{MARK}={folder}".encode()
    found = []
    for path in _PROC.glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in path.read_bytes().split(b"\0"):
                found.append(started(pid))
    return [it for it in found if it.began]
