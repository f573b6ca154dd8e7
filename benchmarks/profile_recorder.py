"""py-spy beside processes that work: starts it, waits for it, and says plainly if it cannot be had."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .interface import BenchmarkFailed
from .servers import cpu_s_of

RATE = 100
"""Samples in a second. Each stops the process while its stacks are read, so more would slow it down."""
_TRY_WITHIN_S = 30.0
_START_WITHIN_S = 90.0
"""py-spy reads the symbols of every library before its first sample; Spark's workers have many."""


@dataclass(frozen=True, slots=True)
class Target:
    """A process to be looked at."""

    name: str
    pid: int
    with_children: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was seen of one process."""

    name: str
    folded: str
    """Stacks, a line for each, with their counts."""
    cpu_s: float
    """Processor time that it used while py-spy ran, children that lived all the time included."""
    seconds: float


def find_py_spy() -> str | None:
    """Path of py-spy: the one of this Python's environment, else the one on PATH."""
    return shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")


def why_not() -> str | None:
    """Why nothing can be recorded here; None if it can. It is tried on a process that does nothing."""
    py_spy = find_py_spy()
    if py_spy is None:
        return "there is no py-spy: pip install py-spy"
    idle = "import sys, time; print('up', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", idle], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        tried = subprocess.run(
            [py_spy, "dump", "--native", "--pid", str(process.pid)],
            capture_output=True,
            text=True,
            timeout=_TRY_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"py-spy did not look at an idle process within {_TRY_WITHIN_S:g} s"
    finally:
        process.kill()
        process.communicate()
    if tried.returncode == 0:
        return None
    said = tried.stderr.strip() or f"it ended with code {tried.returncode}"
    return f"py-spy may not look at other processes here (it needs root or CAP_SYS_PTRACE): {said}"


class Recording:
    """One py-spy for each target. `over` is there when all have ended: then nobody needs to work on.

    Threads and processes that do not share memory with it can look for the file.
    """

    def __init__(
        self, targets: Sequence[Target], seconds: float, folder: Path, log: IO[bytes]
    ) -> None:
        self._targets = targets
        self._seconds = seconds
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log = log
        self._over = folder / "over"
        self._begun_s = 0.0
        self._cpu_before_s: list[float] = []
        self._cpu_after_s: list[float] = []
        self._took_s = 0.0
        self._watcher = threading.Thread(target=self._watch, name="recording")

    @property
    def over(self) -> Path:
        """A file that is there as soon as the recording has ended."""
        return self._over

    def start(self) -> None:
        """Begin."""
        self._over.unlink(missing_ok=True)
        self._begun_s = time.monotonic()
        self._cpu_before_s = [cpu_s_of(_family(target)) for target in self._targets]
        for target in self._targets:
            self._processes.append(
                subprocess.Popen(self._command(target), stdout=self._log, stderr=self._log)
            )
        self._watcher.start()

    def stop(self) -> None:
        """End every py-spy that still runs, and let the watcher end."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        if self._watcher.ident is not None:
            self._watcher.join()

    def results(self) -> list[Recorded]:
        """After the end: what was seen. `BenchmarkFailed` if some py-spy has failed."""
        self._watcher.join()
        for target, process in zip(self._targets, self._processes, strict=True):
            if process.returncode != 0 or not self._file(target).exists():
                self._log.seek(0)
                said = self._log.read().decode(errors="replace").strip()[-2000:]
                raise BenchmarkFailed(f"py-spy saw nothing of the {target.name}:\n{said}")
        return [
            Recorded(
                target.name, self._file(target).read_text("utf-8"), after - before, self._took_s
            )
            for target, before, after in zip(
                self._targets, self._cpu_before_s, self._cpu_after_s, strict=True
            )
        ]

    def _command(self, target: Target) -> list[str]:
        command = [find_py_spy() or "py-spy", "record", "--pid", str(target.pid)]
        command += ["--duration", f"{max(1, round(self._seconds))}", "--rate", str(RATE)]
        command += ["--format", "raw", "--native", "--idle", "--output", str(self._file(target))]
        return command + (["--subprocesses"] if target.with_children else [])

    def _file(self, target: Target) -> Path:
        return self._folder / f"{target.name}.folded"

    def _watch(self) -> None:
        deadline = self._begun_s + self._seconds + _START_WITHIN_S
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
        self._cpu_after_s = [cpu_s_of(_family(target)) for target in self._targets]
        self._took_s = time.monotonic() - self._begun_s
        self._over.touch()


@contextlib.contextmanager
def recording(targets: Sequence[Target], seconds: float, folder: Path) -> Iterator[Recording]:
    """A recording of these processes that has begun; no py-spy is left behind."""
    with tempfile.TemporaryFile() as log:
        found = Recording(targets, seconds, folder, log)
        try:
            found.start()
            yield found
        finally:
            found.stop()


def _family(target: Target) -> list[int]:
    return [target.pid, *(descendants(target.pid) if target.with_children else [])]


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have started."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for child in map(int, tasks.read_text().split()):
                found += [child, *descendants(child)]
    return found
