"""Mistakes that are planted into the real program, one at a time: each must be found.

`planted(name)` makes one for as long as it lasts. A mistake is a patch of one function of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch


class Patches:
    """Takes the place of functions, until it is closed."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def around(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Call `wrapper(original, *arguments)` instead of a function or method."""
        original = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            return wrapper(original, *arguments, **options)

        self._stack.enter_context(patch.object(owner, name, call))

    def close(self) -> None:
        self._stack.close()


@dataclass(frozen=True, slots=True)
class Mistake:
    """One of them."""

    name: str
    text: str
    promise: str
    plant: Callable[[Patches], None]


MISTAKES: dict[str, Mistake] = {}


def mistake(
    name: str, promise: str, text: str
) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    """Register what plants a mistake."""

    def register(plant: Callable[[Patches], None]) -> Callable[[Patches], None]:
        assert name not in MISTAKES, name
        MISTAKES[name] = Mistake(name, text, promise, plant)
        return plant

    return register


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The program makes this mistake, while this lasts."""
    from tests.simulation.system import mistakes_client, mistakes_server  # noqa: F401

    patches = Patches()
    try:
        MISTAKES[name].plant(patches)
        yield
    finally:
        patches.close()


def names() -> list[str]:
    """All mistakes there are."""
    from tests.simulation.system import mistakes_client, mistakes_server  # noqa: F401

    return list(MISTAKES)
