"""`tstreams serve --shards` as it is run, with the processes that it starts."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import moebius
from tests.integration.cli import CLEAN
from tstreams.protocol import Describe, Measure, Measured, Message, NodeInfo, decode_reply, encode

from .raw import SHARDS

DEADLINE_S = 60
_numbers = itertools.count()


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
    return found


class Family:
    """A server of several shards, and what is known of its processes."""

    def __init__(self, data: Path, *flags: str, listen: str = "tcp://127.0.0.1:0") -> None:
        self._log = data.with_suffix(f".{next(_numbers)}.log")
        self._errors = self._log.open("wb")
        command = [sys.executable, "-m", "tstreams", "serve", "--data", str(data), "--json"]
        command += ["--shards", str(SHARDS), "--listen", listen]
        command += [] if "--http" in flags else ["--http", "off"]
        self.process = subprocess.Popen(
            [*command, *flags],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=CLEAN,
            process_group=0,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready: dict[str, Any] = json.loads(line or "{}")
        """What it says when it is ready; nothing if it has ended before."""
        self.addresses: list[str] = self.ready.get("addresses", [])

    @property
    def log(self) -> str:
        return self._log.read_text()

    # What it says.

    def ask(self, message: Message, address: str = "", **options: Any) -> Any:
        with moebius.Client(address or self.addresses[0], **options) as client:
            return decode_reply(client.call(type(message).__name__, encode(message)))

    def describe(self, address: str = "", **options: Any) -> NodeInfo:
        found = self.ask(Describe(), address, **options)
        assert isinstance(found, NodeInfo)
        return found

    def measured(self) -> Measured:
        found = self.ask(Measure())
        assert isinstance(found, Measured)
        return found

    def addresses_of(self, shard: int, **options: Any) -> list[str]:
        leader = self.describe(**options).map[shard].leader
        assert leader is not None
        return leader.addresses

    # Its processes.

    @property
    def children(self) -> dict[int, int]:
        """The processes of the shards, by shard: the lines of their logs say so."""
        found = {}
        for line in self.log.splitlines():
            if " serving on " in line and " shard=" in line:
                fields = dict(it.split("=") for it in line.split() if it.count("=") == 1)
                found[int(fields["shard"])] = int(fields["process"])
        return found

    def kill(self, shard: int) -> None:
        """Kill the process of a shard, and wait until there is another one that serves."""
        before = self.children
        epoch = self.describe().map[shard].epoch
        os.kill(before[shard], signal.SIGKILL)
        until(lambda: self.describe().map[shard].epoch > epoch)
        assert self.children[shard] != before[shard]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """As an operator does."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """The exit status; all its processes are gone then."""
        status = self.process.wait(DEADLINE_S)
        until(lambda: not any(map(is_there, self.children.values())))
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def family(data: Path, *flags: str, listen: str = "tcp://127.0.0.1:0") -> Iterator[Family]:
    with contextlib.closing(Family(data, *flags, listen=listen)) as found:
        yield found
