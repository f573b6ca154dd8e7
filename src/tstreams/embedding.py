"""A server inside of the program that uses it."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .client.blocking.client import Client
from .client.config import ClientConfig
from .limits import CLIENT_TIMEOUT_S

_numbers = itertools.count(1)


def embedded(
    path: str | Path,
    *,
    timeout: float = CLIENT_TIMEOUT_S,
    listen: Sequence[str] = (),
    **options: Any,
) -> Client:
    """Serve a data directory from a thread of this process, and connect to it.

    The same client as that of `connect`, and the same promises: what is acknowledged is on disk. Closing
    it closes the server. `listen` lets others in too, by further addresses; `options` are the settings
    of `tstreams serve`. `InvalidState` if another server has the directory.
    """
    from .config import Config
    from .server import Node

    address = f"inproc://tstreams-{os.getpid()}-{next(_numbers)}"
    config = ClientConfig(address, token=options.get("token", ""), timeout=timeout)
    node = Node(Config(data=Path(path), **options), listen=[address, *listen])
    with contextlib.ExitStack() as stack:
        stack.enter_context(node.in_thread())
        return Client(config, on_closed=stack.pop_all().close)
