"""All that a shard keeps its things in, simulated: a disk, a database on it, and the room that is left."""

from __future__ import annotations

import random
from typing import cast

from tests.simulation.database import SimulatedDatabase, SimulatedStore
from tests.simulation.disk import SimulatedFolder
from tstreams.index import Store
from tstreams.server.room import Room

FREE_BYTES = 1 << 40


class SimulatedRoom(Room):
    """Room on the disk. `full` takes it away, as a file of somebody else would."""

    def __init__(self) -> None:
        self.full = False

    def look(self) -> tuple[int, int]:
        return 0 if self.full else FREE_BYTES, 0

    def fits(self, size: int) -> bool:
        return not self.full

    def has(self, size: int) -> bool:
        return not self.full

    def is_ample(self) -> bool:
        return not self.full

    def text(self) -> str:
        return "the disk is full"


class SimulatedStorage:
    """The port `tstreams.server.storage.Storage`, with a plug that can be pulled.

    Set `steps_left`: the power fails before that many more changes of the disk or the database.
    """

    def __init__(self, disk: SimulatedFolder | None = None) -> None:
        self.disk = disk or SimulatedFolder()
        self.database = SimulatedDatabase(self.disk.step)
        self._room = SimulatedRoom()

    @property
    def steps_left(self) -> int | None:
        return self.disk.steps_left

    @steps_left.setter
    def steps_left(self, steps: int | None) -> None:
        self.disk.steps_left = steps

    def store(self) -> Store:
        return cast(Store, SimulatedStore(self.database))

    def folder(self) -> SimulatedFolder:
        return self.disk

    def room(self) -> SimulatedRoom:
        return self._room

    def lose_power(self, seed: int) -> None:
        self.disk.lose_power(seed)
        self.database.lose_power(random.Random(seed))
