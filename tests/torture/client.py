"""The process of a client: `python -m tests.torture.client writer NAME tcp://127.0.0.1:7070 ...`"""

from __future__ import annotations

import random
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

import tstreams
from tests.checker.recording import Recorder
from tests.torture.work import WORK, Life

FENCED = 3
"""The exit code of one whose name another has taken."""


def live(kind: str, url: str, timeout_s: float, life: Life) -> int:
    """Work. Whoever does not know any more where it stands begins anew; whoever is fenced ends."""
    while not life.ends():
        try:
            with tstreams.connect(url, timeout=timeout_s) as ts:
                WORK[kind](ts, life)
        except tstreams.Fenced:
            return FENCED
        except (tstreams.Unavailable, tstreams.InvalidState) as error:
            print(f"{time.monotonic():.3f} {type(error).__name__}: {error}", flush=True)
            time.sleep(0.05)
    return 0


def main() -> int:
    """The command."""
    parser = ArgumentParser("python -m tests.torture.client", description=__doc__)
    parser.add_argument("kind", choices=WORK)
    parser.add_argument("name")
    parser.add_argument("url")
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--sign", type=Path, required=True)
    parser.add_argument("--stop", type=Path, required=True)
    parser.add_argument("--seed", default="")
    parser.add_argument("--timeout", type=float, default=30.0)
    given = parser.parse_args()
    recorder = Recorder(given.history)
    life = Life(given.name, random.Random(given.seed), recorder, given.stop, given.sign)
    return live(given.kind, given.url, given.timeout, life)


if __name__ == "__main__":
    sys.exit(main())
