"""The front door beside a server: a process of its own for HTTP, started, watched, and ended with the server."""

from __future__ import annotations

import fcntl
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from urllib.parse import urlsplit

from ..config import Config, http_address
from ..errors import BadRequest, Unavailable
from ..logs import fields

log = logging.getLogger("tstreams.server")

NEEDED = ("starlette", "uvicorn", "prometheus_client")
"""What `tstreams[console]` installs."""
PAUSE_S_MIN = 0.5
"""How long to wait before a front door that died is started again; twice as long each time."""
PAUSE_S_MAX = 30.0
STEADY_S = 60.0
"""One that lived for so long may be started again at once."""
END_S = 6.0
"""How long it may take to end by itself, before it is made to."""
BACKLOG = 512


class FrontDoor:
    """A socket that is bound at once, and a process that answers there from `start` to `stop`."""

    def __init__(self, config: Config, listener: socket.socket) -> None:
        self._config = config
        self._listener = listener
        host, port = listener.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        """How it is reached."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def start(self, addresses: Sequence[str]) -> None:
        """Serve, in front of a storage server that listens on these addresses."""
        self._thread = threading.Thread(
            target=self._watch, args=(self._settings(addresses),), name="tstreams-front-door"
        )
        self._thread.start()

    def stop(self) -> None:
        """End the process, and give the socket back. May be called again, and without a start."""
        with self._lock:
            self._stopping.set()
            process = self._process
            if process is not None and process.stdin is not None:
                process.stdin.close()  # that is how it is told
        if process is not None:
            _end(process)
        if self._thread is not None:
            self._thread.join()
        self._listener.close()

    def _settings(self, addresses: Sequence[str]) -> bytes:
        config = self._config
        settings = {
            "socket": self._listener.fileno(),
            "url": self.url,
            "server": reachable(addresses),
            "token": config.token,
            "certificate": None if config.tls_certificate is None else str(config.tls_certificate),
            "hosts": list(config.http_hosts),
            "log_level": config.log_level,
            "log_format": config.log_format,
        }
        return json.dumps(settings).encode() + b"\n"

    def _watch(self, settings: bytes) -> None:
        """Start it, and start it again whenever it ends, until told to stop."""
        pause_s = PAUSE_S_MIN
        while (process := self._spawn(settings)) is not None:
            begun_at = time.monotonic()
            status = process.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - begun_at > STEADY_S:
                pause_s = PAUSE_S_MIN
            log.error(
                "the front door has ended: it is started again",
                extra=fields(status=status, pause_s=pause_s),
            )
            self._stopping.wait(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def _spawn(self, settings: bytes) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
            # A group of its own: Ctrl-C is for the server, which ends it in its turn.
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tstreams.discovery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[self._listener.fileno()],
                process_group=0,
                bufsize=0,
            )
            assert process.stdin is not None
            try:
                process.stdin.write(settings)
            except BrokenPipeError:
                log.warning("the front door ended before it was told what to do")
            return process


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            log.warning("the front door does not end", extra=fields(signal=number.name))
            process.send_signal(number)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            continue
        return


def open_front_door(config: Config, asked_for: bool) -> FrontDoor | None:
    """The front door that the configuration wants, with its socket bound; None: it wants none, or there can be none.

    `asked_for`: somebody has said so. Then it is an error if there can be none; else a line in the log.
    """
    address = http_address(config.http)
    if address is None:
        return None
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        text = "HTTP needs the extra: pip install 'tstreams[console]'"
        if asked_for:
            raise BadRequest(f"cannot serve on http://{config.http}: {text}")
        log.info(f"serving without HTTP, and so without the console: {text}")
        return None
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        listener = _above_standard(socket.create_server(address, family=family, backlog=BACKLOG))
    except OSError as error:
        text = f"cannot serve on http://{config.http}: {error.strerror or error}"
        if asked_for:
            raise Unavailable(text) from None
        log.warning(f"{text}. Serving without HTTP; --http chooses another port")
        return None
    return FrontDoor(config, listener)


def _above_standard(made: socket.socket) -> socket.socket:
    """The same socket with a number that is none of the three standard ones, which may all be closed."""
    if made.fileno() > 2:
        return made
    with made:
        return socket.socket(fileno=fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))


def reachable(addresses: Sequence[str]) -> str:
    """The address by which a program on the same machine reaches the server best."""

    def rank(address: str) -> int:
        return next(n for n, kind in enumerate(("tcp:", "ipc:", "")) if address.startswith(kind))

    address = min(addresses, key=rank)
    url = urlsplit(address)
    inside = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - where it listens, not where we do
    if url.hostname in inside:
        return f"{url.scheme}://{inside[url.hostname]}:{url.port}"
    return address
