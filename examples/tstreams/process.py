"""A storage server in a process of its own, to be stopped, killed and started again."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path


class ServerProcess:
    """`tstreams serve` on a folder. It keeps its address when it is started again."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.address = "tcp://127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it says that it serves."""
        command = [sys.executable, "-m", "tstreams", "serve", "--json", "--log-level", "warning"]
        command += ["--data", str(self.data), "--listen", self.address, "--http", "off"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the server did not start: it ended with {self._process.wait()}")
        self.address = json.loads(line)["addresses"][0]

    def kill(self) -> None:
        """SIGKILL: it gets no time to finish anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, as an operator stops it; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()  # does nothing to a process that has ended
        assert process.stdout is not None
        process.stdout.close()
        return process.wait()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def tstreams(*words: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of `tstreams`: what it printed, and its exit code."""
    command = [sys.executable, "-m", "tstreams", *map(str, words)]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)
