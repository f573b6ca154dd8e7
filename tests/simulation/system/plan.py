"""A plan: what clients will do, and what will go wrong when. With its seed it says all of a run."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a client does, `pause_ms` after the one before. `number` tells it from all others."""

    number: int
    client: str
    kind: str
    stream: str = ""
    agent: str = ""
    partition: int = 0
    count: int = 1
    how: str = ""
    pause_ms: int = 0

    def __str__(self) -> str:
        words = [f"{self.client} #{self.number}: {self.kind}"]
        words += [self.how] if self.how else []
        words += [f"{self.stream}/{self.partition}"] if self.stream else []
        words += [f"as {self.agent}"] if self.agent else []
        words += [f"x{self.count}"] if self.count != 1 else []
        words += [f"(after {self.pause_ms} ms)"] if self.pause_ms else []
        return " ".join(words)


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something goes wrong for a time, `delay_ms` after somebody has come to the deed of this number."""

    deed: int
    kind: str
    who: str = "server"
    delay_ms: int = 0
    for_ms: int = 0
    count: int = 0

    def __str__(self) -> str:
        words = [f"at #{self.deed} + {self.delay_ms} ms: {self.kind} {self.who}"]
        words += [f"for {self.for_ms} ms"] if self.for_ms else []
        words += [f"({self.count})"] if self.count else []
        return " ".join(words)


class StreamPlan(msgspec.Struct, frozen=True):
    """A stream that is there from the beginning."""

    name: str
    partitions: int
    ttl_ms: int


class Plan(msgspec.Struct, frozen=True):
    """All of a run."""

    seed: int
    streams: list[StreamPlan]
    deeds: list[Deed]
    faults: list[Fault]
    rots: bool = False
    """Whether a bit rots in the end."""
    shards: int = 1

    @property
    def clients(self) -> list[str]:
        """Those who do something, in the order of their first deed."""
        return list(dict.fromkeys(it.client for it in self.deeds))

    def deeds_of(self, client: str) -> list[Deed]:
        return [it for it in self.deeds if it.client == client]

    def partitions(self, stream: str) -> int:
        """Of a stream of the plan; all others have one."""
        return next((it.partitions for it in self.streams if it.name == stream), 1)

    def with_only(self, deeds: list[Deed], faults: list[Fault]) -> Plan:
        return Plan(self.seed, self.streams, deeds, faults, self.rots, self.shards)


def save(plan: Plan, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")


def load(path: Path) -> Plan:
    return msgspec.json.decode(path.read_bytes(), type=Plan)
