"""Programs in processes of their own that have imported tstreams before they begin.

To import it takes half a second of a processor, and hundreds of tests start servers and clients. So one process of a test
process has imported everything, has no threads, and forks one off for each program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence

_FDS = 3
_NUMBER_BYTES = 16
"""What tells of the program tells numbers of this length, padded: its process, and what it ended with."""
_MESSAGE_BYTES_MAX = 65_536


class Forked:
    """A program that runs; as `subprocess.Popen`, as far as tests need it."""

    def __init__(self, code: str, arguments: Sequence[str]) -> None:
        their_stdin, our_stdin = os.pipe()
        our_stdout, their_stdout = os.pipe()
        our_status, their_status = os.pipe()
        theirs = [their_stdin, their_stdout, their_status]
        _origin().ask(json.dumps([code, list(arguments)]).encode(), theirs)
        for fd in theirs:
            os.close(fd)
        self.stdin = os.fdopen(our_stdin, "w")
        self.stdout = os.fdopen(our_stdout)
        self._status = our_status
        self.pid = int(os.read(self._status, _NUMBER_BYTES))
        os.set_blocking(self._status, False)
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended a moment ago
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """What it ended with; None as long as it runs."""
        if self.returncode is None:
            with contextlib.suppress(BlockingIOError):
                self.returncode = int(os.read(self._status, _NUMBER_BYTES))
        return self.returncode

    def wait(self, timeout: float) -> int:
        """What it ended with. `subprocess.TimeoutExpired` if it does not."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked program", timeout)
            time.sleep(0.002)
        return code

    def close(self) -> None:
        """It has ended: give the pipes back."""
        with contextlib.suppress(BrokenPipeError):  # what it was told last it did not read
            self.stdin.close()
        self.stdout.close()
        os.close(self._status)


class _Origin:
    """The process that forks, as others see it. It ends with the one that started it."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        theirs.close()

    def ask(self, message: bytes, fds: Sequence[int]) -> None:
        assert len(message) < _MESSAGE_BYTES_MAX
        socket.send_fds(self._link, [message], list(fds))


_known: list[_Origin] = []


def _origin() -> _Origin:
    if not _known or _known[0].pid != os.getpid():
        _known[:] = [_Origin()]
    return _known[0]


def _serve(link: socket.socket) -> None:
    """Fork one off for each message, until nobody is there."""
    import tstreams.aio
    import tstreams.server.sharded_node  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended that it forks
    while True:
        message, fds, _, _ = socket.recv_fds(link, _MESSAGE_BYTES_MAX, _FDS)
        if not message:
            return
        if os.fork() == 0:
            link.close()
            _watch(message, fds)
        for fd in fds:
            os.close(fd)


def _watch(message: bytes, fds: Sequence[int]) -> None:
    """In a process beside the program: begin it, and tell how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stdin, stdout, status = fds
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _run(message, stdin, stdout)
    os.close(stdin)
    os.close(stdout)
    os.write(status, b"%*d" % (_NUMBER_BYTES, pid))
    _, code = os.waitpid(pid, 0)
    os.write(status, b"%*d" % (_NUMBER_BYTES, os.waitstatus_to_exitcode(code)))
    os._exit(0)


def _run(message: bytes, stdin: int, stdout: int) -> None:
    """The program, as `python -c` runs one."""
    code, arguments = json.loads(message)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.close(stdin)
    os.close(stdout)
    sys.argv = ["-c", *arguments]
    status = 0
    try:
        exec(compile(code, "<forked>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
