"""Mistakes that are planted into the real program, one at a time: each must be found.

`planted(name)` makes one for as long as it lasts. A mistake is a patch of one function of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any
from unittest.mock import patch


class Patches:
    """Takes the place of functions, until it is closed."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def around(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Call `wrapper(original, *arguments)` instead of a function or method. `TypeError`: it takes others."""
        original = getattr(owner, name)
        _check_fit(original, wrapper)

        def call(*arguments: Any, **options: Any) -> Any:
            return wrapper(original, *arguments, **options)

        self._stack.enter_context(patch.object(owner, name, call))

    def close(self) -> None:
        self._stack.close()


def _check_fit(original: Callable[..., Any], wrapper: Callable[..., Any]) -> None:
    """Else it would fail when it is called, and that would look as if the mistake was found."""
    takes, given = (signature(it).parameters.values() for it in (original, wrapper))
    takes_all = any(it.kind is it.VAR_POSITIONAL for it in given)
    if not takes_all and len(given) != len(takes) + 1:
        raise TypeError(
            f"{original} takes {len(takes)} arguments, what is planted {len(given) - 1}"
        )


@dataclass(frozen=True, slots=True)
class Mistake:
    """One of them."""

    name: str
    text: str
    promise: str
    plant: Callable[[Patches], None]
    shards: int
    """Of the server in which it can show."""


MISTAKES: dict[str, Mistake] = {}


def mistake(
    name: str,
    promise: str,
    text: str,
    shards: int = 1,
    *,
    among: dict[str, Mistake] = MISTAKES,
) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    """Register what plants a mistake, among those of the simulation unless it is said otherwise."""

    def register(plant: Callable[[Patches], None]) -> Callable[[Patches], None]:
        assert name not in among, name
        among[name] = Mistake(name, text, promise, plant, shards)
        return plant

    return register


@contextmanager
def planted(name: str, among: Mapping[str, Mistake] | None = None) -> Iterator[None]:
    """The program makes this mistake, while this lasts. `among`: those of the simulation."""
    patches = Patches()
    try:
        (known() if among is None else among)[name].plant(patches)
        yield
    finally:
        patches.close()


def known() -> dict[str, Mistake]:
    """All mistakes there are."""
    from tests.simulation.system import (  # noqa: F401
        mistakes_client,
        mistakes_server,
        mistakes_shards,
    )

    return MISTAKES


def names() -> list[str]:
    """What they are called."""
    return list(known())
