"""A server in a process of its own, which can be stopped, killed and started again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

_CODE = """
import sys
from pathlib import Path
from tstreams.config import Config
from tstreams.server import Node
from tstreams.server.sharded_node import ShardedNode
config = Config(data=Path(sys.argv[1]), shards=int(sys.argv[3]))
node = (Node if config.shards == 1 else ShardedNode)(config, [sys.argv[2]])
node.run(lambda: print("ready", flush=True))
"""


class ServerProcess:
    """Serves the same directory on the same address, again and again."""

    def __init__(self, data: Path, shards: int = 1) -> None:
        self._data = data
        self._shards = shards
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", _CODE, str(self._data), self.address, str(self._shards)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        """As an operator does."""
        assert self._end(signal.SIGTERM) == 0

    def kill(self) -> None:
        """As the machine does."""
        assert self._end(signal.SIGKILL) == -signal.SIGKILL

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        process.send_signal(number)
        code = process.wait(30)
        process.stdout.close()
        return code
