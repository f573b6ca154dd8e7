"""What is kept in the folder of a development cluster: its shape, its ports, and its processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ...errors import Corrupt, InvalidState
from .processes import Started

FILE = "cluster.json"
LOCK = "lock"
_LOOK_S = 0.05


class NodePlan(msgspec.Struct, frozen=True):
    """A node: what it is called here, and its ports."""

    name: str
    port: int
    http_port: int

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Its front door."""
        return f"http://127.0.0.1:{self.http_port}"


class State(msgspec.Struct):
    """A development cluster. Written after every change, before anything that depends on it happens."""

    name: str
    log: str
    shards: int
    replicas: int
    zookeeper_port: int
    engine_ports: list[int]
    nodes: list[NodePlan]
    processes: dict[str, Started] = {}


def load(folder: Path) -> State | None:
    """What a folder holds; None: no cluster. `Corrupt` if it cannot be read."""
    path = folder / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{path} does not describe a development cluster: {error}. Put back what was there, or end its processes "
            "by hand and remove the folder"
        ) from None


def save(folder: Path, state: State) -> None:
    """Keep it."""
    fresh = folder / f".{FILE}.{os.getpid()}"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    fresh.replace(folder / FILE)


@contextmanager
def locked(folder: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Keep others off a folder while something is done in it. `InvalidState` if somebody is at it, and for longer than
    this. The file goes with the folder; it is free as soon as its holder ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    # Children must not inherit it: they would hold it for as long as they run.
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        deadline = time.monotonic() + wait_s
        while not _is_ours(descriptor):
            if time.monotonic() >= deadline:
                raise InvalidState(
                    f"another `tstreams cluster` is at work in {folder}: wait until it is done"
                )
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(descriptor)


def _is_ours(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
