"""One server with 100 000 streams, under load, for all tests of the console; and a browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

import tstreams
from tests.integration.cli import CLEAN, DEADLINE_S
from tests.integration.discovery.doors import Door, door

from .browser import Opener, browsing, opening

STREAMS = 100_000


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Not for longer than it is needed: while there is one its event loop counts as running, and tests that want
    a loop of their own fail."""
    with browsing() as made:
        yield made


@pytest.fixture(scope="package")
def busy(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server under load. The browser comes first: without one nothing else need be done."""
    with door(tmp_path_factory.mktemp("console") / "data") as made:
        command = [sys.executable, "-m", "tests.e2e.console.load", made.tcp, str(STREAMS)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=CLEAN) as load:
            assert load.stdin is not None
            assert load.stdout is not None
            try:
                assert load.stdout.readline() == b"ready\n"
                yield made
                assert load.poll() is None, "the load has ended by itself"
                load.stdin.close()
                assert load.wait(DEADLINE_S) == 0
            finally:
                load.kill()


@pytest.fixture
def ts(busy: Door) -> Iterator[tstreams.Client]:
    with tstreams.connect(busy.tcp) as client:
        yield client


@pytest.fixture
def tabs(browser: Browser, busy: Door) -> Iterator[Opener]:
    with opening(browser, busy.url) as make:
        yield make
