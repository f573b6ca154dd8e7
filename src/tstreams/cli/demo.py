"""`tstreams demo`: a day of card payments on Spark, with kills and an audit."""

from __future__ import annotations

import signal
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from ..errors import Unavailable
from . import output
from .output import FAILED, OK, checked, say_json, whole

if TYPE_CHECKING:
    from ..demo.show import Outcome

NEEDED = ("numpy", "pyarrow", "pyspark", "rich")
REPORT = Path("tstreams-demo.html")


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams demo",
        "See it work: producers write card payments in transactions, some of which are cancelled or expire; "
        "a Spark query finds suspicious cards and sums up countries; its driver is killed with SIGKILL in "
        "the middle of micro-batches, and goes on; an audit computes everything anew and compares.\n\n"
        "Takes two to three minutes on two cores, and ends by itself. It runs a server of its own in a "
        "temporary folder, which is removed in the end. Writes a report as an HTML file. Exit code 1: the audit "
        "has found something missing or duplicated.\n\n"
        'Needs the packages of the extra `spark`: pip install "tstreams[spark]".',
        """
        tstreams demo
        tstreams demo --payments 2000000 --kills 5
        tstreams demo --report demo.html --json
        """,
    )
    parser.add_argument(
        "--payments",
        metavar="N",
        type=whole(1000, 10**8),
        default=500_000,
        help="how many payments [500000]",
    )
    parser.add_argument(
        "--kills",
        metavar="N",
        type=whole(0, 100),
        default=2,
        help="how often to kill the driver [2]",
    )
    parser.add_argument(
        "--rate",
        metavar="N",
        type=whole(100, 10**7),
        default=10_000,
        help="how many payments a second the producers write, at most [10000]",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        type=checked(Path),
        default=REPORT,
        help=f"where the report goes [{REPORT}]",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the server's data, and say where it is"
    )
    output.add_json(parser)
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"the demo needs {', '.join(missing)}: install the extra `spark`, "
            'pip install "tstreams[spark]"'
        )
    from rich.console import Console

    from ..demo.screen import LiveScreen
    from ..demo.show import Options, Show

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    options = Options(arguments.payments, arguments.kills, arguments.rate)
    path = arguments.report.resolve()
    with LiveScreen(Console(stderr=True)) as screen:
        show = Show(options, screen)
        try:
            outcome = show.run()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # who is impatient must not leave half of it
            show.close(arguments.keep)
    return finish(outcome, path, as_json=arguments.json, kept=arguments.keep)


def finish(outcome: Outcome, path: Path, *, as_json: bool, kept: bool) -> int:
    """Write the report, print what it came to, and give the exit code."""
    from rich.console import Console

    from ..demo import report
    from ..demo.screen import summary

    report.write(outcome, path)
    data = outcome.folder / "data"
    if as_json:
        found = {**outcome.as_json(), "report": str(path)}
        say_json({**found, "data": str(data)} if kept else found)
    else:
        console = Console()
        console.print(summary(outcome))
        console.print(f"report: {path}", soft_wrap=True, highlight=False)
        if kept:
            console.print(f"data:   tstreams serve --data {data}", soft_wrap=True, highlight=False)
    return OK if outcome.is_good else FAILED


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Other signals end it as Ctrl-C does: whatever runs is ended, and what was written is removed."""
    raise KeyboardInterrupt
