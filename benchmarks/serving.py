"""The servers of contestants: fresh ones for each round, or one for all rounds where a start costs too much."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol

from .servers import Server


class Served(Protocol):
    """A contestant with a server."""

    @property
    def name(self) -> str:
        """Of the contestant."""

    @property
    def serve(self) -> Callable[[Path], AbstractContextManager[Server]]:
        """Starts its server in a folder."""

    @property
    def lasts(self) -> bool:
        """Its server is slow to start, and is kept for all rounds."""

    @property
    def shares(self) -> str | None:
        """Whose server it uses, if that one takes part."""


def start_servers(
    stack: ExitStack, subjects: Iterable[Served], folder: Path, servers: dict[str, Server]
) -> None:
    """Start what is not among `servers` yet, each in a folder of its own, and add it."""
    for subject in subjects:
        if subject.name in servers:
            continue
        if subject.shares in servers:
            servers[subject.name] = servers[subject.shares]
            continue
        own = folder / subject.name
        own.mkdir()
        servers[subject.name] = stack.enter_context(subject.serve(own))


@contextlib.contextmanager
def lasting_servers(subjects: Iterable[Served], folder: Path) -> Iterator[dict[str, Server]]:
    """Those that are kept for all rounds."""
    servers: dict[str, Server] = {}
    with contextlib.ExitStack() as stack:
        start_servers(stack, [it for it in subjects if it.lasts], folder, servers)
        yield servers
