"""Asking before something is lost."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace


def add_yes(parser: ArgumentParser) -> None:
    """The flag `--yes`."""
    parser.add_argument(
        "--yes", action="store_true", help="do not ask (it is asked only on a terminal)"
    )


def agreed(arguments: Namespace, what: str) -> bool:
    """Whether the user wants this. Nobody is asked where nobody can answer: a script means what it says."""
    if arguments.yes or not sys.stdin.isatty():
        return True
    sys.stderr.write(f"{what}? Type yes: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("yes", "y")
