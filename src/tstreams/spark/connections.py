"""Connections of a Python worker: made when they are needed, and kept for the tasks that come after.

A worker serves one task at a time, but lives for many, and may sleep in between for longer than a session.
"""

from __future__ import annotations

import gc
import threading

from moebius import process

from ..client.blocking.client import Client, connect
from ..client.config import ClientConfig

_lock = threading.Lock()
_clients: dict[ClientConfig, tuple[int, Client]] = {}


def client(config: ClientConfig) -> Client:
    """A connected client, the same for all who ask with the same configuration in this process."""
    with _lock:
        pid, held = _clients.get(config, (0, None))
        if held is None or pid != process.pid or held.closed:
            if process.pid not in _frozen:
                _freeze()
            held = connect(config)
            _clients[config] = process.pid, held
        return held


_frozen: set[int] = set()


def _freeze() -> None:
    """Keep the garbage collector from what was imported.

    Spark runs it after every task, before the worker may take the next one, and it would look at every
    object of every module each time. What is there now stays anyway.
    """
    _frozen.clear()
    _frozen.add(process.pid)
    gc.collect()
    gc.freeze()
