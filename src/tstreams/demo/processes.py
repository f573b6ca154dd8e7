"""The processes of the demo: started, listened to, killed, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ..errors import Unavailable

END_S_MAX = 30.0
LOG_CHARS = 3000
SOURCE = str(Path(__file__).resolve().parents[2])


class Child:
    """A process in a session of its own, so that Ctrl-C is for the demo alone, which ends it then.

    What it prints to standard error goes to a log; standard output is a pipe if `piped`.
    """

    def __init__(
        self, name: str, folder: Path, command: Sequence[str], piped: bool = False
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)},
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else log,
                stderr=log,
                start_new_session=True,
            )
        self._lines = Lines(self._process.stdout) if self._process.stdout is not None else None

    @property
    def pid(self) -> int:
        """The number of its process, and of its group."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.poll()

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it has printed since the last time, without waiting."""
        assert self._lines is not None
        return self._lines.take()

    def tell(self, text: str) -> None:
        """A line for its standard input. Who has ended does not want it any more."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{text}\n".encode())
            self._process.stdin.flush()

    def check(self) -> None:
        """`Unavailable` if it has ended, and not well."""
        if self.status not in (None, 0):
            raise Unavailable(f"{self.name} ended with {self.status}:\n{self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL for it and for all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(END_S_MAX)
        self._close_pipes()

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        self._process.terminate()
        return self._process.wait(END_S_MAX)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def log_tail(self) -> str:
        """The end of what it had to say."""
        return self._log.read_text(errors="replace")[-LOG_CHARS:]


class Lines:
    """Whole lines of JSON from a pipe or from a growing file, as they come."""

    def __init__(self, file: IO[bytes]) -> None:
        self._descriptor = file.fileno()
        self._rest = b""
        os.set_blocking(self._descriptor, False)

    def take(self) -> Iterator[dict[str, Any]]:
        """What is there now. Half a line stays for the next time."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, 1 << 16):
                self._rest += data
        *whole, self._rest = self._rest.split(b"\n")
        for line in whole:
            yield json.loads(line)
