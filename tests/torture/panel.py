"""The panel: a page of memory that the campaign and its server share, with a number for each thing that can be
made to go wrong inside of the server's process."""

from __future__ import annotations

import mmap
from enum import IntEnum, auto
from pathlib import Path

_BYTES = 4096


class Cell(IntEnum):
    """What a number is for. All are 0 while nothing is wrong."""

    CLOCK_MS = 0
    """How far the server's clock is ahead of the true time."""
    SLOW_US = auto()
    """How much longer each write and each sync of the log takes."""
    SYNC_ERROR = auto()
    """The error number that each sync of the log ends with."""
    WRITE_ERROR = auto()
    """The error number that each write of the log ends with, when half of it is written."""
    FLUSH_ERROR = auto()
    """The error number that each flush of the index ends with."""
    INDEX_SYNC_ERROR = auto()
    """The error number that each sync below RocksDB ends with: see `shim.c`."""
    ARMED = auto()
    """The number of the failpoint at which the server dies; they count from 1."""
    SKIPS = auto()
    """How often it passes there before it dies."""
    HIT = auto()
    """The number of the failpoint at which it has died."""


class Panel:
    """Numbers that two processes see. Each is written in one go, by one of them at a time."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._cells = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")
        self.path = path

    def __getitem__(self, cell: Cell) -> int:
        return self._cells[cell]

    def __setitem__(self, cell: Cell, value: int) -> None:
        self._cells[cell] = value

    def heal(self) -> None:
        """Nothing goes wrong any more. The clock stays as it is: nobody may rely on it."""
        for cell in Cell:
            if cell not in (Cell.CLOCK_MS, Cell.HIT):
                self[cell] = 0
