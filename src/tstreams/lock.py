"""The lock that keeps a second server off a data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .errors import InvalidState


class DirectoryLock:
    """Holds a directory until it is released, or the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "lock"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise InvalidState(
                f"{directory} is in use by another server (process {holder or 'unknown'}): "
                "stop that one, or use another directory"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others in."""
        os.close(self._descriptor)
