"""A real terminal for tests: a command runs in it, keys are struck, and what is drawn is seen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .cli import DEADLINE_S, TSTREAMS, Shell


class Terminal:
    """A terminal of 100 columns and 40 lines with a command of `tstreams` in it."""

    def __init__(self, shell: Shell, *words: str, **variables: str) -> None:
        self._main, second = pty.openpty()
        fcntl.ioctl(second, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        env = {**shell.variables, "TERM": "xterm-256color", "PYTHONUTF8": "1", **variables}
        env.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            [*TSTREAMS, *words], stdin=second, stdout=second, stderr=second, env=env
        )
        self.second = second
        self._raw = b""

    def strike(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def wait_for(self, pattern: str) -> None:
        """Until something is drawn, from now on."""
        until = time.monotonic() + DEADLINE_S
        start = len(self._raw)
        while not re.search(pattern, self._raw[start:].decode(errors="replace")):
            assert time.monotonic() < until, self._raw.decode(errors="replace")
            if select.select([self._main], [], [], 0.1)[0]:
                self._raw += os.read(self._main, 65536)

    def ended(self) -> int:
        """Its exit code. What it still draws is thrown away."""
        until = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < until
            if select.select([self._main], [], [], 0.05)[0]:
                self._raw += os.read(self._main, 65536)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)
        os.close(self.second)


@contextmanager
def terminal(shell: Shell, *words: str, **variables: str) -> Iterator[Terminal]:
    made = Terminal(shell, *words, **variables)
    try:
        yield made
    finally:
        made.close()
