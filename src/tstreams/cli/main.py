"""`tstreams COMMAND`: finds the command, runs it, and turns what went wrong into a line and a status."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Protocol

from .. import __version__
from ..errors import Error
from .output import FAILED, INTERRUPTED, OK, USAGE, BadUsage, make_parser, report_error

COMMANDS = {
    "serve": "run a server",
    "stream": "create, show, list, alter, purge and delete streams",
    "produce": "write lines or length-prefixed items into a stream",
    "consume": "read a stream from any point, and follow it",
    "transaction": "browse transactions, look inside, cancel those that are stuck",
    "consumer": "see how far behind consumers are, and put them elsewhere",
    "job": "see the steps that Spark queries and other jobs have committed",
    "cluster": "make, start, watch and change a cluster of servers",
    "node": "see how a server is, and what is in it",
    "top": "watch a server: throughput, latency, lag",
    "pipeline": "run streaming pipelines on Spark",
    "config": "check a server's configuration, and print the defaults",
    "engine": "see which engines can keep a cluster's logs, and install them",
    "verify": "check every byte of a data folder",
    "demo": "see it work: card payments on Spark, kills, and an audit",
}
"""Each is the module of that name. It is not imported before it is asked for."""

STATUSES = """exit codes:
  0    done
  1    it failed; the reason is on standard error
  2    the command line makes no sense
  3    verify found damage
  130  interrupted (Ctrl-C)"""


class Command(Protocol):
    """What the module of a command has."""

    def make_parser(self) -> ArgumentParser:
        """Its command line."""

    def run(self, arguments: Namespace) -> int:
        """Do it. The exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The exit code."""
    _prepare_standard_files()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in COMMANDS:
        return _no_command(words)
    command: Command = importlib.import_module(f".{words[0]}", __package__)
    parser = command.make_parser()
    arguments = parser.parse_args(words[1:])
    try:
        return _guarded(command, arguments)
    except BadUsage as error:
        parser.error(str(error))


def _prepare_standard_files() -> None:
    """A supervisor may start us with standard files closed: the next file that is opened, a ledger say,
    would take their numbers, and whatever is printed would go there. And a terminal may not know all
    the letters that names are made of."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until we end
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, TextIOWrapper):
            file.reconfigure(errors="backslashreplace")


def _guarded(command: Command, arguments: Namespace) -> int:
    as_json: bool = getattr(arguments, "json", False)
    try:
        status = command.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has had enough. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except Error as error:
        for line in error.message.splitlines() or [""]:
            report_error(error.code, line, as_json=as_json)
        return FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        report_error("os", f"{where}{error.strerror or error}", as_json=as_json)
        return FAILED
    return status


def _no_command(words: Sequence[str]) -> int:
    parser = _top_parser()
    if not words:
        parser.print_help(sys.stderr)
        return USAGE
    if not words[0].startswith("-"):
        near = difflib.get_close_matches(words[0], COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}"
        parser.error(f"there is no command {words[0]!r}: {hint}")
    parser.parse_args(words)
    return OK


def _top_parser() -> ArgumentParser:
    commands = "\n".join(f"  {name:13}{summary}" for name, summary in COMMANDS.items())
    parser = make_parser(
        "tstreams",
        f"Transactional, persistent streams.\n\ncommands:\n{commands}\n\n"
        "`tstreams COMMAND --help` says more about each.",
        """
        tstreams serve --data ./data
        tstreams stream create clicks --partitions 4 --ttl 7d
        seq 1000 | tstreams produce clicks
        tstreams consume clicks --follow
        """,
    )
    parser.epilog = f"{parser.epilog}\n\n{STATUSES}"
    parser.usage = "tstreams COMMAND ...\n       tstreams [--help] [--version]"
    parser.add_argument("--version", action="version", version=f"tstreams {__version__}")
    return parser
