"""Connections of the front door: uvicorn's, with deadlines for clients that are slow on purpose, or by nature."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import (
    CONNECTIONS_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_TIMEOUT_S,
    SHUTDOWN_S,
    WRITE_TIMEOUT_S,
)
from .problems import MEDIA_TYPE, Refused, problem_of


class Connection(H11Protocol):
    """A connection that must send the headers of a request in time, and take its answers in time."""

    _headers_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; if there are too many it is told so."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            self._refuse(503, "too_many", f"there are {CONNECTIONS_MAX} connections already")
            return
        self._headers_timer = self.loop.call_later(HEADERS_TIMEOUT_S, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop_timers()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Something came. Whatever is no HTTP is answered with a problem, too."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

    def on_response_complete(self) -> None:
        """An answer went out. What the next request has sent of itself until now has its time, too."""
        super().on_response_complete()
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._headers_timer is None and not self.transport.is_closing():
            self._headers_timer = self.loop.call_later(HEADERS_TIMEOUT_S, self._too_slow)

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP, or too long."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(400, "bad_http", f"{msg} Headers may have {HEADERS_BYTES_MAX} bytes.")
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """The client does not take what it asked for as fast as it comes."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Now it has."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _too_slow(self) -> None:
        self._headers_timer = None
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, "too_slow", f"a request's headers have {HEADERS_TIMEOUT_S:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, detail: str) -> None:
        body = problem_of(Refused(status, code, detail), "/")
        head = (
            f"HTTP/1.1 {status} \r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _stop_timers(self) -> None:
        for timer in (self._headers_timer, self._write_timer):
            if timer is not None:
                timer.cancel()


class HttpServer(uvicorn.Server):
    """uvicorn, without its signal handlers: the process has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


def make_server(application: ASGIApp) -> HttpServer:
    """A server for a socket that is listening already: `await server.serve(sockets=[...])`."""
    settings: dict[str, Any] = {
        "http": Connection,
        "ws": "none",
        "lifespan": "off",
        "interface": "asgi3",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "timeout_keep_alive": int(HEADERS_TIMEOUT_S),
        "timeout_graceful_shutdown": SHUTDOWN_S,
        "h11_max_incomplete_event_size": HEADERS_BYTES_MAX,
    }
    return HttpServer(uvicorn.Config(application, **settings))
