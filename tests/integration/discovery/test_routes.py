"""The table of routes: each has a function, each asks the hook, and schemathesis believes the document."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tstreams
from tstreams.discovery.application import Application
from tstreams.discovery.console import Console
from tstreams.discovery.front import Front
from tstreams.discovery.handlers import handlers_of
from tstreams.discovery.openapi import document
from tstreams.discovery.routes import CONSOLE, ROUTES, Route
from tstreams.discovery.settings import Settings
from tstreams.errors import Unauthorized

from .doors import Door


async def _ask(application: Application, method: str, path: str) -> tuple[int, bytes]:
    """One request, without a network."""
    sent: list[Any] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    body = b"".join(it.get("body", b"") for it in sent)
    return sent[0]["status"], body


def test_a_hook_that_denies_everything_is_heeded_by_every_route() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def deny(identity: str, route: Route, path: Any) -> None:
        asked.append((route.name, dict(path)))
        raise Unauthorized(f"{route.name} is not for you")

    async def main() -> None:
        front = Front(Settings(socket=0, url="http://x", server="tcp://127.0.0.1:1"))
        handlers, _ = handlers_of(front)
        application = Application(handlers, console=Console(), authorise=deny)
        for route in ROUTES:
            path = re.sub(r"\{\w+\}", "7", route.path)
            status, body = await _ask(application, route.method, path)
            assert status == 403, route
            assert b'"code":"unauthorized"' in body
            assert asked.pop()[0] == route.name
        for path in Console().paths:
            status, _ = await _ask(application, "GET", f"/{path}")
            assert status == 403
            assert asked.pop()[0] == CONSOLE.name
        assert application.counts.total() == len(ROUTES) + len(Console().paths)

    asyncio.run(main())


def test_the_hook_learns_what_is_asked_for() -> None:
    asked: list[tuple[str, str, dict[str, Any]]] = []

    def note(identity: str, route: Route, path: Any) -> None:
        asked.append((identity, route.name, dict(path)))

    async def main() -> None:
        front = Front(Settings(socket=0, url="http://x", server="tcp://127.0.0.1:1"))
        handlers, _ = handlers_of(front)
        application = Application(handlers, console=Console(), authorise=note)
        status, _ = await _ask(application, "GET", "/v1/streams/a%2Fb/partitions/3")
        assert status == 503  # allowed, but there is no storage server
        assert asked == [("", "partition", {"stream": "a/b", "partition": 3})]

    asyncio.run(main())


def test_the_document_and_the_table_agree() -> None:
    found = document()
    operations = {
        (path, method.upper()): it["operationId"]
        for path, methods in found["paths"].items()
        for method, it in methods.items()
    }
    assert operations == {(it.path, it.method): it.name for it in ROUTES}
    assert len({it.name for it in ROUTES}) == len(ROUTES)


@pytest.mark.slow
@pytest.mark.timeout(320)
@pytest.mark.xdist_group("discovery")
def test_schemathesis_finds_nothing(shared_door: Door, ts: tstreams.Client, tmp_path: Path) -> None:
    ts.create_stream("fuzzed", partitions=3)
    with ts.producer("fuzzed") as producer, ts.consumer("fuzzed", "reader") as consumer:
        for partition in range(3):
            producer.instant([b"text", b'{"a": 1}', b"\xff"], partition=partition)
            assert consumer.get(partition, timeout=10) is not None
        consumer.checkpoint()
    # All operations with what is right and what is wrong; then, on streams that exist, what is right.
    for name in ("all", "existing"):
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            f"--config-file={Path(__file__).with_name(f'schemathesis-{name}.toml')}",
            "run",
            f"{shared_door.url}/v1/openapi.json",
        ]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=150
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
