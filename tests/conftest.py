"""What holds for all tests."""

from __future__ import annotations

import os
import signal

import pytest

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that lives for seconds: what a better compiler takes it would never give back."""

os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)

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
    parser.addoption(
        "--cluster",
        choices=["jetstream", "bookkeeper", "memory"],
        default=None,
        help="run the behaviour suites of tstreams over a cluster of three nodes whose logs are there, and over no other",
    )
    parser.addoption(
        "--bookkeeper",
        choices=["core", "all"],
        default="core",
        help="which of the tests that need Apache BookKeeper to run, where it is installed",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests over BookKeeper, all or the core; in one process, so that its servers are started once."""
    of_bookkeeper = [it for it in items if _needs_bookkeeper(it)]
    for item in of_bookkeeper:
        item.add_marker(pytest.mark.xdist_group("log"))
    if config.getoption("--bookkeeper") == "all" or config.getoption("--cluster") == "bookkeeper":
        return
    left_out = {it for it in of_bookkeeper if it.get_closest_marker("core") is None}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [it for it in items if it not in left_out]


def _needs_bookkeeper(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    values = () if parameters is None else parameters.params.values()
    return item.get_closest_marker("bookkeeper") is not None or "bookkeeper" in values
