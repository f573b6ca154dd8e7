"""The process of the front door: `tstreams serve` starts it, and tells it what to do on standard input.

It ends on SIGTERM, on SIGINT, or when standard input is closed: so it does not outlive whoever started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys

import msgspec
import uvloop

from .application import Application
from .connections import make_server
from .console import Console
from .front import Front
from .handlers import handlers_of
from .settings import SETTINGS_BYTES_MAX, Settings

_FIRST = asyncio.FIRST_COMPLETED
CONNECT_S = 5.0
"""How long to wait for the storage server before answering without it: those who came meanwhile wait, too."""


def main() -> int:
    """Read the settings, and serve."""
    line = sys.stdin.buffer.readline(SETTINGS_BYTES_MAX)
    if not line:
        return 0  # whoever started this is gone already
    settings = msgspec.json.decode(line, type=Settings)
    _configure_logs(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))
    return 0


def _configure_logs(settings: Settings) -> None:
    from ..logs import configure

    configure(settings.log_level, settings.log_format)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    _stop_at_end_of_input(loop, stopping)

    front = Front(settings)
    handlers, consumers = handlers_of(front)
    application = Application(handlers, console=Console(), hosts=settings.hosts)
    front.application = application
    server = make_server(application)
    listener = socket.socket(fileno=settings.socket)
    async with front.running(consumers.look, consumers.some) as tasks:
        stopped = asyncio.ensure_future(stopping.wait())
        connected = asyncio.ensure_future(front.storage.connected.wait())
        await asyncio.wait([connected, stopped], timeout=CONNECT_S, return_when=_FIRST)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        await asyncio.wait([serving, stopped, *tasks], return_when=_FIRST)
        front.sampler.broadcast.close()  # or its listeners would hold up the end
        server.should_exit = True
        await serving
        for waiting in (stopped, connected):
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting


def _stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    descriptor = sys.stdin.fileno()

    def look() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stopping.set()

    loop.add_reader(descriptor, look)


if __name__ == "__main__":
    sys.exit(main())
