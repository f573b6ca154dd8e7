"""Where readers have found nothing: a reader of many partitions asks for all of them each time."""

from __future__ import annotations

from ..limits import CAUGHT_UP_MAX


class CaughtUp:
    """Partitions, and for each an id from which on nothing is visible in it.

    What is noted holds until the partition is stirred up: nothing becomes visible without that. While it is in
    `stirred` nothing is believed of it; whoever clears `stirred` has it forgotten here first.
    """

    __slots__ = ("_from", "_stirred")

    def __init__(self, stirred: set[tuple[int, int]]) -> None:
        self._stirred = stirred
        self._from: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._from)

    def holds(self, key: tuple[int, int], from_id: int) -> bool:
        """Whether it is known that nothing is visible in a partition from this id on."""
        known = self._from.get(key)
        return known is not None and known <= from_id and key not in self._stirred

    def note(self, key: tuple[int, int], from_id: int) -> None:
        """Nothing was found in a partition from this id on."""
        known = self._from.get(key)
        if known is not None and known <= from_id:
            return
        if len(self._from) >= CAUGHT_UP_MAX:
            self._from.clear()
        self._from[key] = from_id

    def forget_stirred(self) -> None:
        """Something may be visible now in the partitions that were stirred up."""
        for key in self._stirred:
            self._from.pop(key, None)
