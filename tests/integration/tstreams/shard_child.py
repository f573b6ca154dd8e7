"""The process of a shard whose clock a test moves: `python -m tests.integration.tstreams.shard_child FILE`."""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tstreams.server.shard_child import main

_AHEAD_MS = struct.Struct("<q")


def shared_clock(path: Path) -> Callable[[], int]:
    """A clock that is so many milliseconds ahead as a file says."""
    with path.open("rb") as file:
        kept = mmap.mmap(file.fileno(), _AHEAD_MS.size, access=mmap.ACCESS_READ)
    return lambda: time.time_ns() // 1_000_000 + int(_AHEAD_MS.unpack_from(kept)[0])


def set_clock(path: Path, ahead_ms: int) -> None:
    """Move it."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(_AHEAD_MS.pack(ahead_ms))


if __name__ == "__main__":
    sys.exit(main(shared_clock(Path(sys.argv[1]))))
