"""Steps of something that takes a while: a line for each when it is done, and what goes on meanwhile where that can be shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .output import remark, remark_json

if TYPE_CHECKING:
    from rich.console import Console


class Steps:
    """Tells people, or programs, on standard error. `with steps("ZooKeeper"): ...`."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = None if as_json else _console()

    @contextmanager
    def __call__(self, title: str) -> Iterator[None]:
        """One step. If it fails, so is said, and the error goes on."""
        begun_at = time.monotonic()
        try:
            if self._console is None:
                yield
            else:
                with self._console.status(f"{title} ..."):
                    yield
        except BaseException:
            self._say(title, time.monotonic() - begun_at, False)
            raise
        self._say(title, time.monotonic() - begun_at, True)

    def _say(self, title: str, took_s: float, done: bool) -> None:
        if self._as_json:
            remark_json({"step": title, "done": done, "seconds": round(took_s, 3)})
        elif self._console is not None:
            sign = "[green]\u2713[/]" if done else "[red]\u2717[/]"
            self._console.print(f"{sign} {title} [dim]{took_s:.1f} s[/]", highlight=False)
        else:
            remark(f"{title}: {'done' if done else 'failed'} after {took_s:.1f} s")


def _console() -> Console | None:
    """Where a terminal is; None: there is none, or rich is not installed."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=True)
