"""`tstreams job`: the steps that jobs, such as Spark queries, have committed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..discovery import resources as r
from . import output
from .rest import add_door, add_limit, door, limit_of
from .tables import left, more, right, say_resource, show_table, when


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams job",
        "See the steps that jobs have committed. A Spark query that writes is a job, and each of its "
        "micro-batches a step.",
        "tstreams job list",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = output.add_action(
        actions,
        "list",
        "list jobs with their last steps",
        "",
        """
        tstreams job list
        tstreams job list --json | jq -r .name
        """,
    )
    add_limit(listing)
    add_door(listing)
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    found, goes_on = door(arguments).page(r.JobPage, "/v1/jobs", limit_of(arguments))
    if arguments.json:
        for it in found:
            say_resource(it)
        return output.OK
    columns = (left("JOB"), right("LAST STEP"), left("COMMITTED (UTC)", keep=True))
    rows = [(it.name, str(it.last_step), when(it.committed)) for it in found]
    show_table(columns, rows, "no job has committed anything")
    more(goes_on, "jobs")
    return output.OK
