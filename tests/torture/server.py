"""The process of the server: `tstreams serve`, with failpoints, a clock that can be set, and a disk that can fail.

    python -m tests.torture.server --panel FILE [--mistake NAME] --data DIR --listen ADDRESS ...

With `--mistake` it makes one of the mistakes that the simulation plants, or one that only a node can make: the campaign
must find it.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

from tests.simulation.system.mistakes import known, planted
from tests.torture.cluster.mistakes import CLUSTER_MISTAKES
from tests.torture.failpoints import install
from tests.torture.panel import Cell, Panel
from tstreams import server
from tstreams.cli.main import main as tstreams_main
from tstreams.server import joining
from tstreams.server.shard import system_clock

MISTAKES = {**known(), **CLUSTER_MISTAKES}


def main() -> int:
    """Serve until it is told to stop, or dies."""
    parser = ArgumentParser("python -m tests.torture.server", description=__doc__)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--mistake", choices=["", *MISTAKES], default="")
    given, others = parser.parse_known_args()
    panel = Panel(given.panel)

    def clock() -> int:
        return system_clock() + panel[Cell.CLOCK_MS]

    with ExitStack() as stack:
        if given.mistake:
            stack.enter_context(planted(given.mistake, MISTAKES))
        install(panel)
        for owner, name in ((server, "Node"), (joining, "ClusterNode")):
            made = partial(getattr(owner, name), clock=clock)
            stack.enter_context(patch.object(owner, name, made))
        return tstreams_main(["serve", *others])


if __name__ == "__main__":
    sys.exit(main())
