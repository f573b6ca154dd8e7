"""`tstreams verify`: check every byte of a data folder."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..errors import NotFound
from . import output
from .output import Progress, counted, say, say_json


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams verify",
        "Read everything in a data folder and check it: the checksum of every record and item batch, "
        "and that the index and the ledgers agree. Changes nothing. The server must not be running.\n\n"
        "Prints each problem on a line. Exit code 3: there are problems.",
        """
        tstreams verify ./data
        tstreams verify ./data --json
        """,
    )
    parser.add_argument("data", metavar="DIR", type=Path, help="the data folder of a server")
    output.add_json(parser)
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    data: Path = arguments.data
    if not data.is_dir():
        raise NotFound(f"there is no folder {data}: name the one that the server's --data names")

    from ..server.verify import verify

    progress = Progress()

    def show(done: int, total: int) -> None:
        if progress.due:
            share = 100 * done // total if total else 100
            progress.show(f"{share}%  {output.size(done)} of {output.size(total)} checked")

    try:
        report = verify(data, show)
    finally:
        progress.clear()
    counts = {
        "ledgers": report.ledgers,
        "records": report.records,
        "transactions": report.transactions,
    }
    if arguments.json:
        say_json(
            {
                "data": str(data),
                **counts,
                "records_to_replay": report.records_to_replay,
                "problems": report.problems,
            }
        )
    else:
        for problem in report.problems:
            say(problem)
        wrong = counted(len(report.problems), "problem")
        found = wrong if report.problems else "everything is whole"
        said = ", ".join(counted(number, name[:-1]) for name, number in counts.items())
        say(f"{data}: {said}: {found}")
        if report.records_to_replay:
            left = counted(report.records_to_replay, "record")
            say(f"The server did not stop by itself: its next start takes {left} into the index.")
    return output.DAMAGED if report.problems else output.OK
