"""Where a shard keeps its files: the port, so that a simulated disk can take its place, and the real thing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from ..index import Store
from ..ledger.files import Folder, RealFolder
from .room import Room

_FRESH = "index.fresh"


class Storage(Protocol):
    """What a shard is opened from. Each call opens anew."""

    def store(self) -> Store:
        """The database of the index."""

    def folder(self) -> Folder:
        """The folder of the ledgers."""

    def room(self) -> Room:
        """How much room there is."""


class LocalStorage:
    """A directory: the index in one folder, the ledgers in another."""

    def __init__(self, path: Path, disk_reserve_bytes: int = 0) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._reserve_bytes = disk_reserve_bytes

    def store(self) -> Store:
        """The database of the index."""
        return Store(self._path / "index")

    def fresh_store(self) -> Store:
        """An empty database beside it, which `adopt` puts in its place."""
        shutil.rmtree(self._path / _FRESH, ignore_errors=True)
        return Store(self._path / _FRESH)

    def adopt(self) -> None:
        """Put the fresh database, which is closed and durable, into the place of the old one, which is closed too."""
        shutil.rmtree(self._path / "index", ignore_errors=True)
        (self._path / _FRESH).rename(self._path / "index")

    def folder(self) -> RealFolder:
        """The folder of the ledgers."""
        return RealFolder(self._path / "ledgers")

    def room(self) -> Room:
        """The room on this disk."""
        return Room(self._path, self._reserve_bytes)
