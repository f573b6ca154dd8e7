"""Hosts: each is a network namespace with one cable to a bridge. What goes from one to another can be made to get lost.

    zookeeper-1 .. 3   engine-1 .. 3   node-1 .. 3   clients-1 .. 2
         |                 |               |              |
    =====================  bridge, 10.78.0.1  =====================  the campaign

A host loses what it sends to another one if it has the wrong hardware address of it: the bridge passes it on, and
nobody takes it. So nobody is told, connections stay as they are, and each way can be cut for itself. The campaign
always reaches everybody.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.namespace import run_command

HERE = "10.78.0.1"
INTERFACE = "eth0"
_BRIDGE = "bridge"
_NOBODY = "02:00:00:00:00:99"
"""A hardware address that no host has."""

Way = tuple[str, str]
"""From one host to another, by their names."""


@dataclass(frozen=True, slots=True)
class Host:
    """A namespace, which lives as long as the process that keeps it."""

    name: str
    address: str
    keeper: int

    @property
    def way(self) -> tuple[str, ...]:
        """What a command begins with to run there."""
        return ("nsenter", f"--net=/proc/{self.keeper}/ns/net")


@dataclass(slots=True)
class Network:
    """The hosts, and what does not pass between them."""

    hosts: dict[str, Host] = field(default_factory=dict)
    _cuts: Counter[Way] = field(default_factory=Counter)
    """How many faults have cut each way."""

    @contextmanager
    def cut(self, ways: Iterable[Way]) -> Iterator[None]:
        """Whatever is sent on these ways is lost, until this ends."""
        cut = list(ways)
        self._cuts.update(cut)
        self._set(cut)
        try:
            yield
        finally:
            self._cuts.subtract(cut)
            self._set(cut)

    def _set(self, ways: Sequence[Way]) -> None:
        """Let each of these be as it should be."""
        for source in sorted({source for source, _ in ways}):
            targets = {target for one, target in ways if one == source}
            self._tell(
                self.hosts[source],
                [self._order(source, self.hosts[it]) for it in sorted(targets)],
            )

    def _order(self, source: str, target: Host) -> str:
        if self._cuts[source, target.name] > 0:
            return f"neigh replace {target.address} lladdr {_NOBODY} nud permanent dev {INTERFACE}"
        # What is not known is asked for; that takes no time worth speaking of.
        return f"neigh replace {target.address} nud none dev {INTERFACE}"

    def _tell(self, host: Host, orders: Sequence[str]) -> None:
        run_command(*host.way, "ip", "-batch", "-", given="".join(f"{it}\n" for it in orders))


def name_hosts(made: Network, file: Path) -> None:
    """Have this file say what hosts are called, in this mount namespace, which ends with the campaign: bookies look for
    the name of their own address."""
    lines = ["127.0.0.1 localhost", *(f"{it.address} {it.name}" for it in made.hosts.values())]
    file.write_text("".join(f"{it}\n" for it in lines))
    run_command("mount", "--bind", str(file), "/etc/hosts")


def both_ways(some: Iterable[str], others: Iterable[str]) -> list[Way]:
    """From each of these to each of those, and back."""
    there = [(one, other) for one in some for other in others if one != other]
    return there + [(other, one) for one, other in there]


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """Hosts of these names, until the end."""
    run_command("ip", "link", "set", "lo", "up")
    run_command("ip", "link", "add", _BRIDGE, "type", "bridge")
    run_command("ip", "addr", "add", f"{HERE}/24", "dev", _BRIDGE)
    run_command("ip", "link", "set", _BRIDGE, "up")
    with ExitStack() as stack:
        made = Network()
        for number, name in enumerate(names, 11):
            keeper = stack.enter_context(_namespace())
            host = made.hosts[name] = Host(name, f"10.78.0.{number}", keeper)
            _plug(host, f"host{number}")
        yield made


@contextmanager
def _namespace() -> Iterator[int]:
    command = ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as keeper:
        try:
            assert keeper.stdout is not None
            keeper.stdout.readline()  # it is there
            yield keeper.pid
        finally:
            keeper.kill()


def _plug(host: Host, cable: str) -> None:
    far = ["peer", "name", INTERFACE, "netns", str(host.keeper)]
    run_command("ip", "link", "add", cable, "type", "veth", *far)
    run_command("ip", "link", "set", cable, "master", _BRIDGE, "up")
    orders = [
        "link set lo up",
        f"addr add {host.address}/24 dev {INTERFACE}",
        f"link set {INTERFACE} up",
    ]
    run_command(*host.way, "ip", "-batch", "-", given="".join(f"{it}\n" for it in orders))
