"""Connections of a Python worker: made when they are needed, and kept for the tasks that come after.

A worker serves one task at a time, but lives for many, and may sleep in between for longer than a session.
"""

from __future__ import annotations

import gc
import sys
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
        if len(sys.modules) > _frozen.get(process.pid, 0) + _FEW_MODULES:
            _freeze()
        if held is None or pid != process.pid or held.closed:
            held = connect(config)
            _clients[config] = process.pid, held
        return held


_FEW_MODULES = 50
"""If no more than so many came, they are not worth a look at everything."""
_frozen: dict[int, int] = {}
"""By process, of which there is one: how many modules it had when it was frozen last."""


def _freeze() -> None:
    """Keep the garbage collector from what was imported.

    Spark runs it after every task, before the worker may take the next one, and it would look at every
    object of every module each time. What is there now stays anyway. Once is not enough: Spark imports pandas
    while the first task runs.
    """
    _frozen.clear()
    _frozen[process.pid] = len(sys.modules)
    gc.collect()
    gc.freeze()
