"""The short version of `python -m tests.torture --cluster`, and that its parts would have noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cluster_servers import why_not
from tests.torture.cluster import cuts  # noqa: F401 - so that they are in the catalogue
from tests.torture.cluster.facts import compare_facts
from tests.torture.cluster.faults import CLUSTER
from tests.torture.cluster.leaders import Reign, judge_reigns
from tests.torture.cluster.servers import SHARDS
from tests.torture.cluster.zombie import ZOMBIES
from tests.torture.namespace import CLUSTER_PROBE, INSIDE, way_in
from tests.torture.page import render
from tests.torture.plan import Plan
from tests.torture.verdict import Verdict
from tstreams.sharding import home_of

pytestmark = pytest.mark.xdist_group("torture")

KINDS = CLUSTER.kinds
FEW = ("stop-leader", "cut-off-and-killed")
CUT_BY_HAND = (
    """
import socket, subprocess, sys
from tests.torture.cluster.network import both_ways, network

ANSWER = """
    + repr("""
import socket, sys
with socket.create_server((sys.argv[1], 99)) as server:
    print(flush=True)
    while True:
        link, _ = server.accept()
        with link:
            link.sendall(b"hello")
""")
    + """
ASK = """
    + repr("""
import socket, sys
link = socket.create_connection((sys.argv[1], 99), float(sys.argv[2]))
link.settimeout(float(sys.argv[2]))
print(link.recv(9).decode())
""")
    + """

with network(["a", "b", "c"]) as made:
    servers = []
    for host in made.hosts.values():
        command = [*host.way, sys.executable, "-c", ANSWER, host.address]
        servers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        servers[-1].stdout.readline()

    def ask(one, other, wait_s):
        command = [*made.hosts[one].way, sys.executable, "-c", ASK, made.hosts[other].address, f"{wait_s}"]
        return subprocess.run(command, capture_output=True).stdout.decode().strip()

    print("at first", ask("a", "b", 30), ask("b", "a", 30))
    with made.cut([("a", "b")]):
        print("one way", ask("a", "b", 1), ask("b", "a", 1), ask("a", "c", 30), ask("c", "b", 30))
        with made.cut(both_ways(["a"], ["b", "c"])):
            print("more", ask("a", "c", 1), ask("c", "a", 1), ask("b", "c", 30))
        print("less", ask("a", "b", 1), ask("a", "c", 30))
    print("again", ask("a", "b", 30), ask("b", "a", 30))
    for server in servers:
        server.kill()
        server.wait()
"""
)


def need_hosts() -> list[str]:
    """The way into namespaces in which hosts can be made; else the test is skipped, with the reason."""
    way = way_in(CLUSTER_PROBE)
    if isinstance(way, str):
        print(way)
        pytest.skip(way)
    return way


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_wrong_when_leaders_sleep_and_die() -> None:
    need_hosts()
    if (reason := why_not()) is not None:
        print(reason)
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.torture", "--cluster", "--json", "--minutes", "0.1"]
    command += ["--faults", ",".join(FEW), "--seed", "7"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["findings"] == [], done.stderr
    assert done.returncode == 0
    assert set(found["faults"]) == set(FEW)
    assert set(found["skipped"]) == set(KINDS) - set(FEW)
    assert found["outcomes"]["ok"] > 200
    assert found["exactly_once"]["loop"] == found["exactly_once"]["loop_wanted"] > 20
    assert sum(found["zombies"].values()) == found["faults"]["stop-leader"]
    assert all(len(it) > 0 for it in found["reigns"].values())
    assert all(len(set(it.values())) == 1 for it in found["compared"].values())
    page = render(found)
    assert found["commit"] in page
    assert "| `stop-leader` |" in page


# The parts.


def test_each_way_between_hosts_can_be_cut_for_itself() -> None:
    way = need_hosts()
    done = subprocess.run(
        [*way, sys.executable, "-c", CUT_BY_HAND],
        check=False, capture_output=True, text=True, timeout=100, env={**os.environ, INSIDE: "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [it.rstrip() for it in done.stdout.splitlines()] == [
        "at first hello hello",
        "one way   hello hello",  # who cannot be answered cannot connect either
        "more   hello",
        "less  hello",
        "again hello hello",
    ]


def test_every_kind_comes_and_what_wants_to_be_alone_is() -> None:
    plan = Plan(1, KINDS)
    first = plan.first()
    assert {deal.kind for step in first for deal in step.deals} == set(KINDS)
    steps = [*first, *(plan.next(mortal=False) for _ in range(300))]
    assert {deal.kind for step in steps[len(first) :] for deal in step.deals} == set(KINDS)
    for step in steps:
        assert len({KINDS[deal.kind].side for deal in step.deals}) == len(step.deals)
        if any(KINDS[deal.kind].alone for deal in step.deals):
            assert len(step.deals) == 1


def test_two_leaders_of_one_epoch_are_noticed() -> None:
    verdict = Verdict()
    reigns = [Reign(0, 1, "node-1", ""), Reign(0, 2, "node-2", ""), Reign(1, 2, "node-1", "")]
    judge_reigns(reigns, verdict)
    assert verdict.findings == []
    judge_reigns([*reigns, Reign(0, 2, "node-3", "")], verdict)
    assert [it.partition(":")[0] for it in verdict.findings] == ["two-leaders"]


def test_facts_that_differ_are_noticed() -> None:
    verdict = Verdict()
    facts = [(b"a", b"1"), (b"b", b"2")]
    compare_facts(3, {"node-1": facts, "node-2": list(facts), "node-3": facts[:1]}, verdict)
    (found,) = verdict.findings
    assert found.startswith("facts-differ: shard 3: node-1 and node-3 differ in 1 of 2 facts")
    assert "('62', '32', None)" in found


def test_every_shard_has_a_stream_for_zombies() -> None:
    assert [home_of(it, SHARDS) for it in ZOMBIES] == list(range(SHARDS))


def test_without_hosts_of_its_own_there_is_no_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.torture", "--cluster", "--unprivileged"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "no cluster: --unprivileged was given" in done.stderr
