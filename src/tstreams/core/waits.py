"""Why a request cannot be decided yet: something has to be heard from another shard first.

These are raised before a request has had any effect, also on its session: whoever hands it in again, after what it
waits for has come, gets an answer. Those that nobody waits with end as what they are made of.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import NotFound, Unavailable
from ..protocol import Group


class InDoubt(Unavailable):
    """It hangs on groups that are prepared here, and decided elsewhere.

    `reason`: the code of the error that those groups are refused with, if they are not decided. "": they are given
    the time that they have.
    """

    def __init__(self, groups: Iterable[Group], reason: str = "") -> None:
        super().__init__("a checkpoint that spans shards is not decided yet: try again")
        self.groups = list(groups)
        self.reason = reason


class CopyNeeded(NotFound):
    """A stream of another shard is not known here, or not in this version. `number` 0: it was asked for by `name`."""

    def __init__(self, home: int, number: int, name: str = "", version: int = 0) -> None:
        super().__init__("there is no such stream in this shard")
        self.home = home
        self.number = number
        self.name = name
        self.version = version
