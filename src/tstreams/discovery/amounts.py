"""How much of something there is, and how much looking it up may cost."""

from __future__ import annotations

from typing import NamedTuple

from . import resources


class Amount(NamedTuple):
    """Transactions, their items, and their bytes as they are stored."""

    transactions: int = 0
    items: int = 0
    bytes: int = 0

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(*map(sum, zip(self, other, strict=True)))

    def minus(self, other: Amount) -> Amount:
        """What is left without the other. Never negative: what was counted may be gone meanwhile."""
        return Amount(*(max(0, ours - theirs) for ours, theirs in zip(self, other, strict=True)))

    def size(self, exact: bool) -> resources.Size:
        """As a resource."""
        return resources.Size(
            transactions=self.transactions, items=self.items, bytes=self.bytes, exact=exact
        )


class Budget:
    """How often the storage server may be asked to count, for one request of ours."""

    __slots__ = ("left",)

    def __init__(self, strides: int) -> None:
        self.left = strides

    def take(self) -> bool:
        """Whether there is one left; then it is taken."""
        self.left -= 1
        return self.left >= 0
