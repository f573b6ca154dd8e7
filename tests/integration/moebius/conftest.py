"""Servers on every transport, and clients of both kinds."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moebius import Limits, Router, Server

from .faces import FACES, Face

TRANSPORTS = ["tcp", "ipc", "zmq+tcp", "zmq+ipc", "inproc"]
QUICK = Limits(
    sweep_s=0.05,
    heartbeat_s=0.2,
    first_frame_timeout_s=0.5,
    frame_timeout_s=0.5,
    stall_timeout_s=1.0,
    idle_timeout_s=0.6,
    stop_grace_s=0.5,
    reconnect_delay_s_max=0.1,
)
"""Limits that let a test see in a second what takes minutes in life."""

_names = itertools.count()

Serve = Callable[..., Server]
Connect = Callable[..., Face]


@pytest.fixture(params=TRANSPORTS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of each transport."""
    return address_of(request.param, tmp_path)


def address_of(transport: str, tmp_path: Path) -> str:
    if transport.endswith("tcp"):
        return f"{transport}://127.0.0.1:0"
    if transport.endswith("ipc"):
        return f"{transport}://{tmp_path}/{next(_names)}.sock"
    return f"inproc://test-{next(_names)}"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers; they are stopped after the test."""
    with contextlib.ExitStack() as stack:

        def start(router: Router, addresses: str | list[str], **options: Any) -> Server:
            return stack.enter_context(Server(router, addresses, **options).in_thread())

        yield start


@pytest.fixture(params=list(FACES))
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make clients of each kind; they are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(target: Server | str, **options: Any) -> Face:
            url = target if isinstance(target, str) else target.addresses[0]
            face = FACES[request.param](url, **options)
            stack.enter_context(face)
            return face

        yield make


def eventually(condition: Callable[..., Any], timeout_s: float = 10.0) -> Any:
    """Wait until the condition is true; fail if it never is."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.005)
    pytest.fail(f"not true within {timeout_s} s: {condition}")
