"""A browser from the system, and pages in it that notice what should not happen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.e2e.doc_blocks import ROOT

Theme: TypeAlias = Literal["light", "dark"]
NAMES = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_MS = 40_000
SCREENSHOTS = ROOT / "build" / "screenshots"
SIZE = (1280, 860)
expect.set_options(timeout=DEADLINE_MS)


def find_chromium() -> Path:
    """The system's; without one the test is skipped, and fails where tests must be complete."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        text = "no Chromium on this machine: apt-get install chromium"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"{text}. With CI=true these tests must run")
        pytest.skip(text)
    return Path(found)


@contextmanager
def browsing() -> Iterator[Browser]:
    """A headless browser while the block runs."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of the console. It remembers errors, and requests that go elsewhere."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.troubles: list[str] = []
        self.failures_expected = False
        """Whether requests may be refused: the browser writes an error about each."""
        page.set_default_timeout(DEADLINE_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.troubles.append(f"an exception: {error}"))
        page.on("request", self._request)

    def open(self, where: str = "") -> None:
        """Load the console at an address of its own."""
        self.page.goto(f"{self.url}/{where}")
        self.settle()

    def go(self, where: str) -> None:
        """To another page, without loading anew."""
        self.page.evaluate("where => { location.hash = where; }", where)
        self.settle()

    def settle(self) -> None:
        """Until nothing on the page is on its way."""
        expect(self.page.locator("main h1")).to_be_visible()
        expect(self.page.locator("main [aria-busy=true]")).to_have_count(0)

    def shoot(self, name: str) -> None:
        """Keep what it looks like now."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def focused(self) -> str:
        """The name, or the text, of what has the focus."""
        script = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
        return str(self.page.evaluate(script))

    def _console(self, message: ConsoleMessage) -> None:
        refused = message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not (refused and self.failures_expected):
            self.troubles.append(f"the browser says: {message.text}")

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.troubles.append(f"a request to elsewhere: {request.url}")


def troubles_of(tab: Tab) -> list[str]:
    """What axe finds that is serious, or worse."""
    found = Axe().run(tab.page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{tab.page.url}: {each['impact']} {each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


Opener: TypeAlias = Callable[..., Tab]


@contextmanager
def opening(browser: Browser, url: str) -> Iterator[Opener]:
    """Makes tabs while the block runs; at its end none may have seen anything that should not be."""
    contexts, tabs = [], []

    def make(theme: Theme = "light", width: int = SIZE[0], height: int = SIZE[1]) -> Tab:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            timezone_id="Asia/Kathmandu",
            reduced_motion="reduce",
        )
        contexts.append(context)
        tabs.append(Tab(context.new_page(), url))
        return tabs[-1]

    try:
        yield make
    finally:
        for context in contexts:
            context.close()
    assert [trouble for tab in tabs for trouble in tab.troubles] == []
