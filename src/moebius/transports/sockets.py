"""Unix socket files: whose is it?"""

from __future__ import annotations

import errno
import socket
import stat
from pathlib import Path


def claim_socket_path(path: str) -> None:
    """Make sure that nobody listens on this path, and remove a socket file that was left behind.

    The event loop and ZeroMQ would both take the path away from a server that is alive.
    """
    file = Path(path)
    if not file.exists():
        return
    if not stat.S_ISSOCK(file.stat().st_mode):
        raise OSError(errno.EADDRINUSE, f"cannot listen on {path}: the path is in use by a file")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            file.unlink()
            return
    raise OSError(errno.EADDRINUSE, f"cannot listen on {path}: the address is in use")
