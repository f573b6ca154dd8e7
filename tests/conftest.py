"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs like this, and every process that a test starts would inherit it: those
    # in which Ctrl-C is pressed would never end.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """What can be said on the command line."""
    parser.addoption(
        "--shards",
        type=int,
        default=None,
        help="run the behaviour suites of tstreams over a server of so many shards, and over no other",
    )
