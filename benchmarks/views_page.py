"""A browser that opens pages of the console, each time as a stranger, and times them by its own clock."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .door_page import find_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_WITHIN_MS = 60_000
# Runs before anything of the page. `sight` is when what is looked for was on the screen, in milliseconds of the
# page's own time, which begins with the navigation; it is asked for with every change of the page.
_WATCH = """(() => {
  window.looksFor = (selector, text) => {
    window.sight = new Promise((resolve) => {
      const look = () => {
        const found = [...document.querySelectorAll(selector)].some((it) => it.textContent.includes(text));
        if (found) requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
      };
      new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
      look();
    });
  };
  window.looksFor(SELECTOR, TEXT);
})()"""
_ROWS = "main table tbody tr td:first-child a"


class Views:
    """Opens views and says how long each took, in seconds. `missing` says why it cannot, if it cannot."""

    def __init__(self, url: str, browser: Browser | None, missing: str = "") -> None:
        self._url = url
        self._browser = browser
        self.missing = missing

    def streams(self) -> float:
        """From the address to the names of streams on the screen."""
        return self._open("#/streams", _ROWS, "/orders-")

    def overview(self) -> float:
        """From the address to the number of streams."""
        return self._open("", "main dl.figures dd", "")

    def search(self, word: str, name: str) -> float:
        """From the last key of a word to the stream that it finds."""
        return self._open("#/streams", _ROWS, "/orders-", (word, name))

    def _open(
        self, where: str, selector: str, text: str, search: tuple[str, str] = ("", "")
    ) -> float:
        assert self._browser is not None
        context = self._browser.new_context(viewport={"width": 1280, "height": 860})
        try:
            page = context.new_page()
            page.set_default_timeout(_WITHIN_MS)
            script = _WATCH.replace("SELECTOR", repr(selector)).replace("TEXT", repr(text))
            page.add_init_script(script)
            page.goto(f"{self._url}/{where}", wait_until="commit")
            begun_ms, seen_ms = 0.0, float(page.evaluate("sight"))
            if search[0]:
                word, name = search
                page.evaluate("([selector, text]) => looksFor(selector, text)", [_ROWS, name])
                box = page.get_by_role("searchbox").first
                box.fill(word)
                begun_ms = page.evaluate("performance.now()")
                seen_ms = float(page.evaluate("sight"))
            return (seen_ms - begun_ms) / 1000
        finally:
            context.close()


@contextlib.contextmanager
def views_of(url: str, folder: Path) -> Iterator[Views]:
    """A browser for a front door while the block runs; without an address, or a browser, none."""
    path = find_browser()
    if not url or path is None:
        yield Views(url, None, "there is no Chromium" if url else "--without-browser was said")
        return
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        yield Views(url, None, "Playwright is not installed")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, downloads_path=folder)
        try:
            browser.new_page().close()  # a browser that has just been started is not what is measured
            yield Views(url, browser)
        finally:
            browser.close()
