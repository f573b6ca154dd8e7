"""A server in a process of its own, which can be stopped, killed and started again."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from tests.integration.tstreams.forked import Forked
from tstreams.cluster.engines.zookeeper import free_ports

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


def free_addresses(count: int) -> list[str]:
    """Addresses that nobody listens on."""
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(count)]


def server_of(data: Path, shards: int = 1) -> ServerProcess:
    """A server of the streams in a folder, not started yet."""
    (address,) = free_addresses(1)
    return ServerProcess(_CODE, [str(data), address, str(shards)], address)


class ServerProcess:
    """Serves the same directory on the same address, again and again."""

    def __init__(self, code: str, arguments: Sequence[str], address: str) -> None:
        """What the code does says "ready" when it serves."""
        self._code = code
        self._arguments = arguments
        self.address = address
        self._process: Forked | None = None

    def start(self) -> None:
        self._process = Forked(self._code, self._arguments)
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
        process.send_signal(number)
        code = process.wait(30)
        process.close()
        return code
