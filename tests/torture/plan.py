"""The plan: which faults are made, in which order, of a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.torture.failpoints import POINTS, SELDOM
from tests.torture.kinds import SIDES, Deal, Kind

FIRST_POINTS = 2
"""In the beginning all kinds come quickly, and a few failpoints that are reached soon."""
ALONE = 0.25
"""How many steps have one fault only."""


@dataclass(frozen=True, slots=True)
class Tempo:
    """How long faults last, and the pauses between them: first, when every kind comes quickly, and then."""

    lengths_s: tuple[float, float] = (1.3, 3.5)
    """Longer than a lease."""
    pauses_s: tuple[float, float] = (0.1, 1.5)
    first_lengths_s: tuple[float, float] = (1.1, 1.7)
    first_pauses_s: tuple[float, float] = (0.1, 0.4)


@dataclass(frozen=True, slots=True)
class Step:
    """What goes wrong at once, and how long nothing does before it."""

    pause_s: float
    deals: tuple[Deal, ...]

    @property
    def length_s(self) -> float:
        """How long it goes on."""
        return max((it.length_s for it in self.deals), default=0.0)


class Plan:
    """An endless sequence of steps. All kinds come in turn, in any order."""

    def __init__(
        self, seed: int, kinds: Mapping[str, Kind[Any]], tempo: Tempo | None = None
    ) -> None:
        self._rng = random.Random(f"plan {seed}")
        self._kinds = kinds
        self._tempo = tempo or Tempo()
        self._decks: dict[tuple[str, bool], list[str]] = {}
        self._points: list[str] = []

    def first(self) -> list[Step]:
        """Steps in which every kind comes, quickly."""
        single = [it for it, kind in self._kinds.items() if kind.alone]
        server, others = (
            [it for it, kind in self._kinds.items() if kind.side == side and not kind.alone]
            for side in SIDES
        )
        server += ["failpoint"] * (FIRST_POINTS - 1) if "failpoint" in server else []
        for deck in (server, others):
            self._rng.shuffle(deck)
        count = max(len(server), len(others))
        steps = [[deck[at] for deck in (others, server) if at < len(deck)] for at in range(count)]
        return [self._step(it, is_first=True) for it in [*steps, *([it] for it in single)]]

    def next(self, *, mortal: bool) -> Step:
        """The next step. Unless `mortal`, the server lives on."""
        kinds = [self._draw("server", mortal)]
        alone = bool(kinds[0]) and self._kinds[kinds[0]].alone
        if not alone and (not kinds[0] or self._rng.random() >= ALONE):
            kinds.insert(0, self._draw("others", mortal))
        return self._step([it for it in kinds if it])

    def _step(self, kinds: list[str], *, is_first: bool = False) -> Step:
        pauses_s = self._tempo.first_pauses_s if is_first else self._tempo.pauses_s
        deals = [self._deal(it, is_first) for it in kinds]
        return Step(self._rng.uniform(*pauses_s), tuple(deals))

    def _deal(self, kind: str, is_first: bool) -> Deal:
        rng = self._rng
        lengths_s = self._tempo.first_lengths_s if is_first else self._tempo.lengths_s
        point = self._draw_point(is_first) if kind == "failpoint" else ""
        return Deal(kind, rng.uniform(*lengths_s), rng.random(), rng.random(), point)

    def _draw(self, side: str, mortal: bool) -> str:
        deck = self._decks.setdefault((side, mortal), [])
        if not deck:
            for name, kind in self._kinds.items():
                if kind.side == side and (mortal or not kind.mortal):
                    deck += [name] * kind.weight
            self._rng.shuffle(deck)
        return deck.pop() if deck else ""

    def _draw_point(self, is_first: bool) -> str:
        if not self._points:
            self._points = list(POINTS)
            self._rng.shuffle(self._points)
        near = [it for it in self._points if not is_first or POINTS[it] != SELDOM]
        self._points.remove(near[-1])
        return near[-1]
