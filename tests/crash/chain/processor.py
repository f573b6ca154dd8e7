"""The process of a processor: `python -m tests.crash.chain.processor join tcp://127.0.0.1:7070 ...`"""

from __future__ import annotations

import random
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import tstreams
from tests.crash.chain import join, price, route
from tests.crash.chain.life import PLANTS, Life

FENCED = 3
"""The exit code of one whose name another has taken."""

WORK: dict[str, Callable[[tstreams.Client, Life], None]] = {
    price.NAME: price.run,
    join.NAME: join.run,
    route.NAME: route.run,
}
NAMES = tuple(WORK)


def live(name: str, url: str, timeout_s: float, life: Life) -> int:
    """Work. If the outcome of something is unknown, or a group in doubt, go on anew; if fenced, end."""
    while True:
        try:
            with tstreams.connect(url, timeout=timeout_s) as ts:
                WORK[name](ts, life)
            return 0
        except tstreams.Fenced:
            return FENCED
        except (tstreams.Unavailable, tstreams.InvalidState):
            time.sleep(0.05)


def main() -> int:
    """The command."""
    parser = ArgumentParser("python -m tests.crash.chain.processor", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("url")
    parser.add_argument("--seed", default="")
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--max-wait", type=float, default=None)
    parser.add_argument("--plant", choices=("", *PLANTS), default="")
    parser.add_argument("--sign", type=Path, required=True)
    given = parser.parse_args()
    life = Life(random.Random(given.seed), given.max_wait, given.plant, given.sign)
    return live(given.name, given.url, given.timeout, life)


if __name__ == "__main__":
    sys.exit(main())
