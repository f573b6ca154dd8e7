"""A server on a small disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.server import KilledServer
from tests.integration.tstreams_faults.small_disk import (
    can_mount,
    can_unshare,
    mounted,
    run_in_namespace,
)

DISK_MEGABYTES = 48


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A disk of 48 MB; None if the test is going to run elsewhere, where one can be had."""
    if can_mount():
        with mounted(tmp_path / "disk", DISK_MEGABYTES) as disk:
            yield disk
    elif can_unshare():
        yield None
    else:
        reason = "no small disk can be made here: it takes root, or unprivileged user namespaces"
        print(reason)
        pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that needs a small disk runs in a namespace where it can have one, if need be."""
    if pyfuncitem.funcargs.get("small_disk", True) is not None:
        return None
    found = run_in_namespace(pyfuncitem.nodeid)
    assert found.returncode == 0, found.stdout + found.stderr
    return True


@pytest.fixture
def server(small_disk: Path | None, tmp_path: Path) -> Iterator[KilledServer | None]:
    """A server with nothing but its defaults, on the small disk."""
    if small_disk is None:
        yield None
        return
    papers = tmp_path / "papers"
    papers.mkdir()
    server = KilledServer(small_disk / "data", papers=papers)
    server.start()
    try:
        yield server
    finally:
        server.close()
