"""The lock that keeps a second server off a data directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from .errors import InvalidState

ORPHANS_S = 10.0
"""How long to wait for the processes that a killed server had started to notice that, and to end."""
_LOOK_S = 0.02


class DirectoryLock:
    """Holds a directory until it is released, or the process ends, however it ends, and so have all processes that were
    given `descriptor`. If only such are left of another server, they are about to end, and are waited for."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "lock"
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        give_up_at = time.monotonic() + ORPHANS_S
        while not self._taken():
            holder = os.pread(self.descriptor, 32, 0).decode(errors="replace").strip()
            if not _is_gone(holder) or time.monotonic() > give_up_at:
                os.close(self.descriptor)
                raise InvalidState(
                    f"{directory} is in use by another server (process {holder or 'unknown'}): "
                    "stop that one, or use another directory"
                )
            time.sleep(_LOOK_S)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)

    def _taken(self) -> bool:
        with contextlib.suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def release(self) -> None:
        """Let others in."""
        os.close(self.descriptor)


def _is_gone(holder: str) -> bool:
    """Whether there is no such process any more. One that we may not see counts as being there."""
    if not holder.isdecimal():
        return False
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
