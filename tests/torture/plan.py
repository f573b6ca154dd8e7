"""The plan: which faults are made, in which order, of a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from tests.torture.failpoints import POINTS, SELDOM
from tests.torture.faults import KINDS, Deal

LENGTHS_S = (1.3, 3.5)
"""How long a fault lasts: longer than a lease."""
PAUSES_S = (0.1, 1.5)
FIRST_LENGTHS_S, FIRST_PAUSES_S = (1.1, 1.7), (0.1, 0.4)
FIRST_POINTS = 2
"""In the beginning all kinds come quickly, and a few failpoints that are reached soon."""
ALONE = 0.25
"""How many steps have one fault only."""
MORE = {"failpoint": 8, "kill-server": 1, "kill-client": 1}
"""What comes more than once before everything has come."""


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

    def __init__(self, seed: int, kinds: Iterable[str]) -> None:
        self._rng = random.Random(f"plan {seed}")
        self._kinds = list(kinds)
        self._decks: dict[tuple[str, bool], list[str]] = {}
        self._points: list[str] = []

    def first(self) -> list[Step]:
        """Steps in which every kind comes, quickly."""
        server, others = ([it for it in self._kinds if KINDS[it].side == side] for side in SIDES)
        server += ["failpoint"] * (FIRST_POINTS - 1) if "failpoint" in server else []
        for deck in (server, others):
            self._rng.shuffle(deck)
        count = max(len(server), len(others))
        return [
            self._step([deck[at] for deck in (others, server) if at < len(deck)], is_first=True)
            for at in range(count)
        ]

    def next(self, *, mortal: bool) -> Step:
        """The next step. Unless `mortal`, the server lives on."""
        kinds = [self._draw("server", mortal)]
        if not kinds[0] or self._rng.random() >= ALONE:
            kinds.insert(0, self._draw("others", mortal))
        return self._step([it for it in kinds if it])

    def _step(self, kinds: list[str], *, is_first: bool = False) -> Step:
        pauses_s = FIRST_PAUSES_S if is_first else PAUSES_S
        deals = [self._deal(it, is_first) for it in kinds]
        return Step(self._rng.uniform(*pauses_s), tuple(deals))

    def _deal(self, kind: str, is_first: bool) -> Deal:
        rng = self._rng
        lengths_s = FIRST_LENGTHS_S if is_first else LENGTHS_S
        point = self._draw_point(is_first) if kind == "failpoint" else ""
        return Deal(kind, rng.uniform(*lengths_s), rng.random(), rng.random(), point)

    def _draw(self, side: str, mortal: bool) -> str:
        deck = self._decks.setdefault((side, mortal), [])
        if not deck:
            for kind in self._kinds:
                if KINDS[kind].side == side and (mortal or not KINDS[kind].mortal):
                    deck += [kind] * (1 + MORE.get(kind, 0))
            self._rng.shuffle(deck)
        return deck.pop() if deck else ""

    def _draw_point(self, is_first: bool) -> str:
        if not self._points:
            self._points = list(POINTS)
            self._rng.shuffle(self._points)
        near = [it for it in self._points if not is_first or POINTS[it] != SELDOM]
        self._points.remove(near[-1])
        return near[-1]


SIDES = ("server", "others")
