"""Those who stand before a server's door while it works: `python -m benchmarks.door_company ROLE ...`.

Each prints `ready` when it is there, and stays until it is told to end.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import sys
import time
from collections.abc import Callable
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import msgspec

from moebius.frames import encode_frame
from moebius.messages import Hello

SCRAPE_INTERVAL_S = 1.0
TABLES_INTERVAL_S = 5.0
"""How often a console's page asks for what does not come by itself."""
DRIP_INTERVAL_S = 0.2
SLOW_REQUEST = b"GET /v1/streams?limit=1000 HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"z" * 4000
SLOW_READER = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
IDLE_BATCH = 200
"""Connections that are opened at a time: fewer than wait at a listening socket."""
_FOREVER_S = 1e9


def raise_limit() -> int:
    """As many files as this process may have at all. How many those are."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def scrape(url: str) -> None:
    """Ask for the metrics, each second, as Prometheus does."""
    opener = build_opener(ProxyHandler({}))
    _say_ready()
    while True:
        with opener.open(f"{url}/metrics", timeout=30) as answer:
            answer.read()
        time.sleep(SCRAPE_INTERVAL_S)


def watch(url: str) -> None:
    """What a console's page does, without a browser: events, and now and then some tables."""
    where = urlsplit(url)
    opener = build_opener(ProxyHandler({}))
    with socket.create_connection((where.hostname, where.port or 80), timeout=30) as events:
        events.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        events.recv(65536)
        _say_ready()
        asked_at = 0.0
        while events.recv(65536):
            if time.monotonic() - asked_at > TABLES_INTERVAL_S:
                asked_at = time.monotonic()
                for path in ("/v1/streams", "/v1/consumers", "/v1/transactions/open"):
                    with opener.open(f"{url}{path}", timeout=30) as answer:
                        answer.read()


def idle(port: str, count: str) -> None:
    """Clients that have said hello, and nothing else."""
    raise_limit()
    hello = b"".join(encode_frame(msgspec.msgpack.encode(Hello(name="idle")), ()))
    held: list[socket.socket] = []
    while len(held) < int(count):
        fresh = [
            socket.create_connection(("127.0.0.1", int(port)), timeout=60)
            for _ in range(min(IDLE_BATCH, int(count) - len(held)))
        ]
        for one in fresh:
            one.sendall(hello)
        for one in fresh:
            if not one.recv(4096):
                raise SystemExit("the server has closed an idle connection")
        held += fresh
    _say_ready()
    time.sleep(_FOREVER_S)


def slow(url: str, count: str) -> None:
    """HTTP clients that send a request letter by letter, or take an answer so: half of them each."""
    where = urlsplit(url)

    def dial(number: int) -> Callable[[], None]:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.settimeout(5)
        connection.connect((where.hostname, where.port))
        if number % 2:
            connection.sendall(SLOW_READER)
            return lambda: _read_some(connection)
        left = iter(SLOW_REQUEST)
        return lambda: connection.sendall(bytes([next(left)]))

    drips = [dial(number) for number in range(int(count))]
    _say_ready()
    while True:
        for number, drip in enumerate(drips):
            try:
                drip()
            except (OSError, StopIteration):  # it was cut off, as it should be: come again
                with contextlib.suppress(OSError):
                    drips[number] = dial(number)
        time.sleep(DRIP_INTERVAL_S)


def _read_some(connection: socket.socket) -> None:
    if not connection.recv(16):
        raise ConnectionResetError


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


ROLES: dict[str, Callable[..., None]] = {
    "scrape": scrape,
    "watch": watch,
    "idle": idle,
    "slow": slow,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
