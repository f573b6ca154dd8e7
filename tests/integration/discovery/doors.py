"""A real server with its front door, and a plain HTTP client for it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.integration.cli import CLEAN, DEADLINE_S


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Door:
    """A server in a process of its own, and its two addresses."""

    def __init__(self, process: subprocess.Popen[bytes], tcp: str, url: str) -> None:
        self.process = process
        self.tcp = tcp
        self.url = url
        self.logs: list[str] = []

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        **headers: str,
    ) -> Reply:
        """One request on a connection of its own. Underscores in names of headers are hyphens."""
        where = urlsplit(self.url)
        assert where.hostname is not None
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=DEADLINE_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            raw = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, raw, sent)
            answer = connection.getresponse()
            data = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, data)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Any:
        """What is there; it must be there."""
        reply = self("GET", path, None, raw=None, **headers)
        assert reply.status == 200, reply
        return reply.json

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        """Send something that must be taken."""
        reply = self("POST", path, body)
        assert reply.status == status, reply
        return reply.json

    @property
    def front(self) -> psutil.Process:
        """The process of the front door, once it was started."""
        (child,) = wait_for(psutil.Process(self.process.pid).children)
        assert isinstance(child, psutil.Process)
        return child


@contextmanager
def door(data: Path, *flags: str) -> Iterator[Door]:
    """A server while the block runs; it must end with 0, if it was not killed, and leave no process behind."""
    command = [sys.executable, "-m", "tstreams", "serve", "--data", str(data), "--json"]
    if "--listen" not in flags:
        command += ["--listen", "tcp://127.0.0.1:0"]
    if "--http" not in flags:
        command += ["--http", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *flags], stdout=pipe, stderr=pipe, env=CLEAN) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines: list[str] = []
        errors = process.stderr
        reader = threading.Thread(target=lambda: lines.extend(it.decode() for it in errors))
        reader.start()
        try:
            told = json.loads(process.stdout.readline() or b"{}")
            assert told, "".join(lines)
            made = Door(process, told["addresses"][0], told["http"])
            made.logs = lines
            yield made
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(DEADLINE_S)
            finally:
                process.kill()
                reader.join(DEADLINE_S)
    assert process.returncode in (0, -signal.SIGKILL), "".join(lines)


def wait_for(what: Callable[[], Any]) -> Any:
    """What it gives, once that is something."""
    until = time.monotonic() + DEADLINE_S
    while not (found := what()):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)
    return found


def event_frames(raw: bytes) -> list[tuple[str, Any]]:
    """Server-sent events: their names, and their data."""
    found = re.findall(rb"event: (\w+)\ndata: (.*)\n\n", raw)
    return [(name.decode(), json.loads(data)) for name, data in found]
