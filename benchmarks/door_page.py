"""A console in a browser, and how to see that it is open."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from .interface import BenchmarkFailed
from .servers import ServerProcess, running

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_WITHIN_S = 60.0
_opener = build_opener(ProxyHandler({}))


def console_of(url: str) -> str | None:
    """Why there is no console to be opened; None: there is one, and a browser for it."""
    if find_browser() is None:
        return "there is no Chromium"
    try:
        with _opener.open(f"{url}/", timeout=30) as answer:
            found: bytes = answer.read()
    except HTTPError as error:
        return f"the server has no console (it answers with {error.code})"
    return None if b"<script" in found else "what the server shows at / is no console"


def find_browser() -> str | None:
    """The system's Chromium; None: there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name)) is not None), None)


@contextlib.contextmanager
def open_page(url: str, folder: Path) -> Iterator[ServerProcess]:
    """A browser with the console, until the block ends. It gets its events when the block begins."""
    browser = find_browser()
    assert browser is not None, "console_of was asked before"
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    # It is to look at our page, and to do nothing else meanwhile.
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder / 'browser'}", f"{url}/"]
    with running("browser", command, folder) as process:
        _until(lambda: _metric(url, "http_event_clients") >= 1, "the console gets no events")
        yield process


def wait_for_connections(url: str, count: int) -> None:
    """Until the server has seen them all."""

    def connections() -> bool:
        with _opener.open(f"{url}/v1/statistics", timeout=30) as answer:
            found: int = json.loads(answer.read())["connections"]
        return found >= count

    _until(connections, f"the server does not have {count} connections")


def _metric(url: str, name: str) -> float:
    with _opener.open(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(rf"^tstreams_{name} (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def _until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise BenchmarkFailed(otherwise)
        time.sleep(0.2)
