"""The scene of any campaign: the clients, what was done to everybody, and what has been noticed so far."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from tests.checker.recording import Recorder
from tests.torture.crew import Post

_BEGAN_S = time.monotonic()


@dataclass(slots=True)
class Incident:
    """A fault that was made, and when (seconds of the monotonic clock)."""

    kind: str
    begin_s: float
    end_s: float
    detail: str = ""


def _nobody(kind: str, name: str) -> Post:
    raise RuntimeError(f"nobody said how {kind} {name} reaches the servers")


@dataclass(slots=True)
class Scene:
    """What is the same whatever the clients work against."""

    folder: Path
    seed: int
    recorder: Recorder
    hire: Callable[[str, str], Post] = _nobody
    """Makes a client of a kind and a name that is not started yet."""
    guards: list[Callable[[], None]] = field(default_factory=list)
    """Those who look after all that is no client."""
    posts: list[Post] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    """Clients that have vanished for good, with something open."""
    incidents: list[Incident] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    told_to_end_s: float = inf
    """When clients were told to come to an end."""

    def rng(self, name: str) -> random.Random:
        """What is left to chance for somebody of this name: the same with the same seed."""
        return random.Random(f"{self.seed} {name}")

    def rest(self, seconds: float) -> None:
        """Let time pass, and look after everybody."""
        until = time.monotonic() + seconds
        while True:
            self.tend()
            if (left := until - time.monotonic()) <= 0:
                return
            time.sleep(min(left, 0.05))

    def rest_until(self, is_so: Callable[[], bool], within_s: float, every_s: float = 0.1) -> bool:
        """Let time pass until something is so; whether it was in time."""
        until = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > until:
                return False
            self.rest(every_s)
        return True

    def tend(self) -> None:
        """Whoever ended by itself is complained of, and started again."""
        for guard in self.guards:
            guard()
        for post in self.posts:
            post.tend()

    def complain(self, text: str) -> None:
        """Something is wrong that no fault explains."""
        tell(f"COMPLAINT {text}")
        self.complaints.append(text)

    def close(self) -> None:
        """End all clients."""
        for post in self.posts:
            post.end()
        self.recorder.close()


def tell(text: str) -> None:
    """Progress, for people: seconds, and what."""
    print(f"{time.monotonic() - _BEGAN_S:7.1f} {text}", file=sys.stderr, flush=True)
