"""A server inside of the program that uses it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .client.asynchronous.client import Client as AsyncClient
from .client.asynchronous.client import open_client
from .client.asynchronous.opening import Opening
from .client.blocking.client import Client
from .client.config import ClientConfig
from .limits import CLIENT_TIMEOUT_S

_numbers = itertools.count(1)


def embedded(
    path: str | Path,
    *,
    timeout: float = CLIENT_TIMEOUT_S,
    tracing: bool | None = None,
    listen: Sequence[str] = (),
    **options: Any,
) -> Client:
    """Serve a data directory from a thread of this process, and connect to it.

    The same client as that of `connect`, and the same promises: what is acknowledged is on disk. Closing
    it closes the server. `listen` lets others in too, by further addresses; `options` are the settings
    of `tstreams serve`. `InvalidState` if another server has the directory.
    """
    config = _config(timeout, tracing, options)
    server = _Server(path, [config.url, *listen], options)
    server.start()
    return Client(config, on_closed=server.stop)


def embedded_aio(
    path: str | Path,
    *,
    timeout: float = CLIENT_TIMEOUT_S,
    tracing: bool | None = None,
    listen: Sequence[str] = (),
    **options: Any,
) -> Opening[AsyncClient]:
    """Serve a data directory from a thread of this process, and connect to it. `await` or `async with` it.

    The same client as that of `connect`, and the same promises: what is acknowledged is on disk. Closing
    it closes the server, also if the task is cancelled. `listen` lets others in too, by further addresses;
    `options` are the settings of `tstreams serve`. `InvalidState` if another server has the directory.
    """
    config = _config(timeout, tracing, options)
    return Opening(_open(config, _Server(path, [config.url, *listen], options)))


async def _open(config: ClientConfig, server: _Server) -> AsyncClient:
    loop = asyncio.get_running_loop()

    async def stop() -> None:
        # It takes place also if this task is cancelled, whether or not a thread has begun with it.
        await asyncio.shield(loop.run_in_executor(None, server.stop))

    try:
        await loop.run_in_executor(None, server.start)
    except BaseException:
        await stop()
        raise
    return await open_client(config, stop)


def _config(timeout: float, tracing: bool | None, options: dict[str, Any]) -> ClientConfig:
    address = f"inproc://tstreams-{os.getpid()}-{next(_numbers)}"
    return ClientConfig(address, token=options.get("token", ""), timeout=timeout, tracing=tracing)


class _Server:
    """A server in a thread. It may be stopped from another thread while it starts."""

    def __init__(self, path: str | Path, listen: list[str], options: dict[str, Any]) -> None:
        self._path = path
        self._listen = listen
        self._options = options
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._stopped = False

    def start(self) -> None:
        """Recover and serve; comes back when clients can connect."""
        from .config import Config
        from .server import Node

        with self._lock:
            if not self._stopped:
                node = Node(Config(data=Path(self._path), **self._options), listen=self._listen)
                self._stack.enter_context(node.in_thread())

    def stop(self) -> None:
        """Flush and close; comes back when the directory is free for others."""
        with self._lock:
            self._stopped = True
            self._stack.close()
