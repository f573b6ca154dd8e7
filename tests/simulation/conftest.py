"""Small limits, and silence, for simulated shards."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

Apart = Callable[..., Any]


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of disks fail here; nobody wants to read that."""
    caplog.set_level(logging.CRITICAL + 1, "tstreams.server")


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a large server to happen, happens here with a few streams and records."""
    monkeypatch.setattr("tstreams.core.state.STREAMS_CACHED_MAX", 1)
    monkeypatch.setattr("tstreams.index.applier.STREAMS_CACHED_MAX", 1)
    monkeypatch.setattr("tstreams.ledger.local.LARGE_GROUP_BYTES", 700)
    monkeypatch.setattr("tstreams.server.contents.REPLAY_RECORDS", 3)
    monkeypatch.setattr("tstreams.server.compactor.STEP_BYTES", 1000)


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    """Calls functions in a process of its own: while the whole system is simulated the program has another
    clock and other limits, and servers of other tests may be running in threads of this one."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()
