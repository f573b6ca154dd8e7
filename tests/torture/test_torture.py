"""The short version of `python -m tests.torture`, and that it would have noticed."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checker.findings import KINDS as FINDINGS
from tests.checker.history import OK, Instant, Read, read, write
from tests.integration.tstreams.conftest import eventually
from tests.torture.failpoints import PLACES, POINTS
from tests.torture.faults import SERVER
from tests.torture.page import render
from tests.torture.plan import FIRST_POINTS, Plan
from tests.torture.proxy import Proxy, Way
from tests.torture.resources import Sample, report
from tests.torture.scene import Incident
from tests.torture.verdict import Verdict, judge_histories, standstill

pytestmark = pytest.mark.xdist_group("torture")

KINDS = SERVER.kinds
UNPRIVILEGED = {name for name, kind in KINDS.items() if not kind.needs}


def torture(*flags: str) -> tuple[int, dict[str, Any], str]:
    """Run it: its exit code, its report, and what it said."""
    command = [sys.executable, "-m", "tests.torture", "--json", "--unprivileged", *flags]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=115)
    assert found.stdout, found.stderr
    return found.returncode, json.loads(found.stdout), found.stderr


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short campaign with every fault that needs no privilege: nothing was wrong."""
    folder = tmp_path_factory.mktemp("torture") / "kept"
    code, found, said = torture("--minutes", "0.1", "--keep", str(folder))
    assert found["findings"] == [], said
    assert code == 0
    assert set(found["faults"]) == UNPRIVILEGED
    assert (
        found["failpoints"]["deaths"] + found["failpoints"]["not_reached_in_time"] == FIRST_POINTS
    )
    assert set(found["skipped"]) == set(KINDS) - UNPRIVILEGED
    assert found["outcomes"]["ok"] > 500
    assert found["exactly_once"]["loop"] == found["exactly_once"]["loop_wanted"] > 100
    assert found["longest_standstill"]["writing"]["seconds"] > 0
    assert found["resources"]["samples"] > 10
    assert found["resources"]["lives"] > 4
    assert list(folder.glob("*.jsonl"))
    return folder


@pytest.mark.slow
def test_nothing_is_wrong_when_everything_fails(kept: Path) -> None:
    verdict = Verdict()
    judge_histories(sorted(kept.glob("*.jsonl")), verdict)
    assert verdict.findings == []


@pytest.mark.slow
def test_a_history_that_was_tampered_with_is_noticed(kept: Path, tmp_path: Path) -> None:
    operations = list(read(sorted(kept.glob("*.jsonl"))))
    lost = next(it for it in operations if isinstance(it, Instant) and it.outcome == OK)
    key = (lost.stream, lost.partition, lost.id)
    without = [
        it
        for it in operations
        if not (isinstance(it, Read) and (it.stream, it.partition, it.id) == key)
    ]
    assert len(without) < len(operations)
    write(tmp_path / "history.jsonl", without)
    verdict = Verdict()
    judge_histories([tmp_path / "history.jsonl"], verdict)
    assert any(it.startswith("lost-write") for it in verdict.findings)


@pytest.mark.slow
def test_a_server_that_makes_a_mistake_is_noticed() -> None:
    """Of the transactions of a group it drops the last."""
    mistake = ("--mistake", "lose-member", "--faults", "kill-server,twin")
    code, found, said = torture("--minutes", "0.1", *mistake)
    assert code == 1, said
    assert {it.partition(":")[0] for it in found["findings"]} & set(FINDINGS), found["findings"]
    page = render(found)
    assert f"- {found['findings'][0]}\n" in page
    assert f"| `kill-server` | {found['faults']['kill-server']:,} |" in page
    assert found["commit"] in page


# The parts.


def test_the_same_seed_is_the_same_plan() -> None:
    def steps(seed: int) -> list[object]:
        plan = Plan(seed, MADE)
        return [*plan.first(), *(plan.next(mortal=at < 200) for at in range(300))]

    assert steps(7) == steps(7)
    assert steps(7) != steps(8)


MADE = {name: kind for name, kind in KINDS.items() if not kind.needs}


def test_every_failpoint_comes_and_a_server_that_shall_live_is_not_killed() -> None:
    plan = Plan(1, MADE)
    first = [deal.kind for step in plan.first() for deal in step.deals]
    assert set(first) == UNPRIVILEGED
    assert first.count("failpoint") == FIRST_POINTS
    mortal = [deal for _ in range(400) for deal in plan.next(mortal=True).deals]
    assert {deal.point for deal in mortal if deal.kind == "failpoint"} == set(POINTS)
    gentle = [deal for _ in range(400) for deal in plan.next(mortal=False).deals]
    assert not {deal.kind for deal in gentle if KINDS[deal.kind].mortal}
    assert {deal.kind for deal in gentle} == {
        name for name in UNPRIVILEGED if not KINDS[name].mortal
    }


def test_failpoints_are_around_functions_that_exist() -> None:
    for place in PLACES:
        assert callable(getattr(place.owner, place.function)), place
    assert len(POINTS) == 2 * len(PLACES) + 1


def samples(seconds: int, **growth: float) -> list[Sample]:
    """A life of a server that grows by so much in a minute."""

    def at(second: int, name: str, size: float) -> float:
        return size + growth.get(name, 0.0) * second / 60

    return [
        Sample(
            1000.0 + second, 17, at(second, "memory_mb", 60.0),
            int(at(second, "descriptors", 80)), int(at(second, "threads", 10)),
        )
        for second in range(seconds)
    ]  # fmt: skip


def test_a_leak_is_noticed() -> None:
    assert report(samples(600))["verdict"] == "no leak"
    assert report(samples(30, memory_mb=600))["verdict"] == "too short to tell"
    assert report([])["verdict"] == "too short to tell"
    assert report(samples(600, memory_mb=20))["leaks"] == ["memory_mb"]
    assert report(samples(600, descriptors=20, threads=2))["leaks"] == ["descriptors", "threads"]
    filling = [Sample(it, 17, min(200, 50 + it), 80, 10) for it in map(float, range(600))]
    assert report(filling)["verdict"] == "no leak", "what fills up and stays so is a cache"
    at_the_end = [Sample(it, 17, 60 + max(0, it - 400), 80, 10) for it in map(float, range(600))]
    assert report(at_the_end)["leaks"] == ["memory_mb"]
    found = report(at_the_end, 400.0)
    assert (found["samples"], found["longest_life_s"], found["verdict"]) == (400, 399.0, "no leak")


def test_the_longest_standstill_is_found_and_explained() -> None:
    incidents = [Incident("kill-server", 2.5, 2.9), Incident("stop-server", 4.0, 9.0)]
    assert standstill([1.0, 2.0, 3.0, 10.0, 11.0], incidents) == {
        "seconds": 7.0, "after_s": 2.0, "faults": ["stop-server"],
    }  # fmt: skip
    assert standstill([], incidents) == {}


@pytest.fixture
def echo() -> Iterator[tuple[int, list[bytes]]]:
    """A server that says what it hears: its port, and what it has heard."""
    heard: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                while data := self.request.recv(1000):
                    heard.append(data)
                    self.request.sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], heard
        finally:
            server.shutdown()
            thread.join()


def test_a_link_can_be_cut_refuse_and_lose(echo: tuple[int, list[bytes]]) -> None:
    port, heard = echo
    with Proxy("127.0.0.1", port, 1) as proxy:

        def connect() -> socket.socket:
            return socket.create_connection(("127.0.0.1", proxy.port), timeout=30)

        def answer(link: socket.socket, data: bytes) -> bytes:
            try:
                link.sendall(data)
                return link.recv(1000)
            except ConnectionError:
                return b""

        with connect() as link:
            assert answer(link, b"one") == b"one"
            proxy.weather.holes = frozenset({Way.UP})
            link.sendall(b"lost")
            proxy.heal()
            assert answer(link, b"cut off") == b""
        with connect() as link:
            proxy.weather.delay_s_max = 0.01
            assert answer(link, b"late") == b"late"
            proxy.weather.holes = frozenset({Way.DOWN})
            link.sendall(b"unanswered")
            eventually(lambda: b"unanswered" in heard)
            proxy.heal()
            assert answer(link, b"cut off") == b""
        proxy.weather.refuses = True
        with connect() as link:
            assert answer(link, b"refused") == b""
        proxy.heal()
        with connect() as link:
            assert answer(link, b"two") == b"two"
    assert heard == [b"one", b"late", b"unanswered", b"two"]
