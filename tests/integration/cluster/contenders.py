"""Starts contenders, and listens to what they say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any

from tstreams.cluster.zookeeper import ZooKeeperSettings


class Contender:
    def __init__(self, settings: ZooKeeperSettings, node: str, timeout_s: float, shard: int = 0):
        self.said: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.integration.cluster.contender",
                settings.hosts,
                settings.cluster,
                node,
                str(shard),
                str(timeout_s),
            ],
            stdout=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def epochs(self) -> list[int]:
        """In which it led, one after the other."""
        return [line["led"] for line in self.said if "led" in line]

    @property
    def states(self) -> list[str]:
        return [line["state"] for line in self.said if "state" in line]

    def stop(self) -> None:
        """Let it stand still."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a crash would."""
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(json.loads(line))
