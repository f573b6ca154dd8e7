"""Kinds of faults: each is a context; inside of it, something is broken. A catalogue has those of one kind of campaign."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

W = TypeVar("W")
"""What a campaign has under it."""
Side = Literal["server", "others"]
SIDES: tuple[Side, ...] = ("server", "others")
Need = Literal["", "disk", "cable", "shim", "spark"]
"""What a fault can need that is not everywhere."""


@dataclass(frozen=True, slots=True)
class Deal:
    """One fault, as the plan has it: the same seed, the same numbers."""

    kind: str
    length_s: float = 0.0
    pick: float = 0.0
    """Whom, or which way: from 0 up to 1."""
    amount: float = 0.0
    """How much: from 0 up to 1."""
    point: str = ""


@dataclass(frozen=True, slots=True)
class Kind(Generic[W]):
    """A kind of fault."""

    body: Callable[[W, Deal], AbstractContextManager[str]]
    side: Side
    """Of each side one fault at a time."""
    mortal: bool = False
    """Whether the server dies of it, of which there is one."""
    needs: Need = ""
    weight: int = 1
    """How often it comes before everything has come."""
    alone: bool = False
    """Whether nothing else may go wrong at the same time."""


class Catalogue(Generic[W]):
    """Kinds of faults by their names."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind[W]] = {}

    def fault(
        self,
        name: str,
        side: Side,
        *,
        mortal: bool = False,
        needs: Need = "",
        weight: int = 1,
        alone: bool = False,
    ) -> Callable[[Callable[[W, Deal], Iterator[str]]], Callable[[W, Deal], Iterator[str]]]:
        """Register a kind. What is yielded says more about it."""

        def register(
            body: Callable[[W, Deal], Iterator[str]],
        ) -> Callable[[W, Deal], Iterator[str]]:
            assert name not in self.kinds, name
            made = contextmanager(body)
            self.kinds[name] = Kind(made, side, mortal, needs, weight, alone)
            return body

        return register
