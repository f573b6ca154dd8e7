"""What `failover` found, as tables and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tstreams.cluster.engines.nats import find_nats

from .cluster_servers import DURABILITY
from .interface import Report, Table
from .machine import filesystem_of, machine_facts, nats_version, package_versions
from .rounds import percentile

KILL, STOP, MOVE, ROLL = "kill", "stop", "move", "roll"
EVENTS = {
    KILL: "leader killed",
    STOP: "leader told to end",
    MOVE: "shard moved",
    ROLL: "nodes restarted in turn",
}
PLANNED_MS = 200.0
"""How long a pause may be that somebody has asked for."""
TAKE_OVER_MS = 1000.0
"""How long another node may take, once ZooKeeper has given up the one that was killed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    kills: int
    moves: int
    session_s: float
    """ZooKeeper's session timeout."""
    shards: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest pause around an event, and what a pause usually was, in seconds."""

    longest_s: float
    usual_s: float

    @property
    def ms(self) -> float:
        """What the event has added."""
        return max(0.0, self.longest_s - self.usual_s) * 1000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the cluster, and what clients saw of it."""

    kind: str
    writer: Gap
    reader: Gap
    errors: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """Everything that happened."""

    events: list[Event] = field(default_factory=list)
    written: int = 0

    def keep(self, event: Event) -> None:
        """One more."""
        self.events.append(event)

    def of(self, kind: str) -> list[Event]:
        """Those of one kind."""
        return [event for event in self.events if event.kind == kind]


def make_report(plan: Plan, found: Found, folder: Path, seconds: float) -> Report:
    """Everything that is to be shown."""
    nats = find_nats()
    gaps = {kind: _gaps(found.of(kind)) for kind in EVENTS}
    errors = {kind: [it for event in found.of(kind) for it in event.errors] for kind in EVENTS}
    figures = {
        **{f"{kind}_p99_ms": gaps[kind]["write_ms"]["p99"] for kind in (KILL, STOP, MOVE)},
        **{f"{kind}_errors": len(errors[kind]) for kind in EVENTS},
    }
    targets: dict[str, float | None] = {
        "kill_p99_ms": plan.session_s * 1000 + TAKE_OVER_MS,
        "stop_p99_ms": PLANNED_MS,
        "move_p99_ms": PLANNED_MS,
        **{f"{kind}_errors": 0 for kind in EVENTS},
    }
    data = {
        "benchmark": "failover",
        "figures": figures,
        "targets": targets,
        "events": EVENTS,
        "gaps": gaps,
        "errors": errors,
        "written": found.written,
        "missing": {},
        "session_s": plan.session_s,
        "shards": plan.shards,
        "rounds": plan.kills,
        "moves": plan.moves,
        "fsync": "on",
        "durability": DURABILITY,
        "filesystem": filesystem_of(folder),
        "machine": machine_facts(),
        "versions": {
            **package_versions("tstreams", "uvloop", "nats-py", "kazoo"),
            "nats-server": nats_version(nats) if nats is not None else None,
        },
        "seconds": round(seconds, 1),
    }
    return Report(data, _tables(plan, found, targets), _notes(found, plan))


def _gaps(events: list[Event]) -> dict[str, Any]:
    return {
        "write_ms": _summary([event.writer.ms for event in events]),
        "read_ms": _summary([event.reader.ms for event in events]),
        "usual_ms": round(max((it.writer.usual_s for it in events), default=0.0) * 1000, 3),
    }


def _summary(gaps_ms: list[float]) -> dict[str, Any]:
    return {
        "p50": round(percentile(gaps_ms, 50), 1) if gaps_ms else None,
        "p99": round(percentile(gaps_ms, 99), 1) if gaps_ms else None,
        "max": round(max(gaps_ms), 1) if gaps_ms else None,
        "rounds": [round(it, 1) for it in gaps_ms],
    }


def _tables(plan: Plan, found: Found, targets: dict[str, float | None]) -> tuple[Table, ...]:
    rows = []
    for kind, what in EVENTS.items():
        events = found.of(kind)
        target = targets.get(f"{kind}_p99_ms")
        pauses = _gaps(events)
        rows.append(
            (
                what,
                str(len(events)),
                *(f"{pauses['write_ms'][it] or 0:.0f}" for it in ("p50", "p99", "max")),
                "-" if target is None else f"{target:.0f}",
                f"{pauses['read_ms']['p99'] or 0:.0f}",
                str(sum(len(event.errors) for event in events)),
            )
        )
    columns = ("event", "times", "p50", "p99", "max", "target", "readers p99", "errors")
    title = f"pauses in ms; ZooKeeper's session timeout {plan.session_s:g} s"
    return (Table(title, columns, tuple(rows)),)


def _notes(found: Found, plan: Plan) -> tuple[str, ...]:
    errors = [f"{event.kind}: {it}" for event in found.events for it in event.errors]
    return (
        "A pause is the longest time between two acknowledgements (or two transactions that were read) around the "
        "event, until all was at rest again and the node was back, less the usual time between two.",
        f"{found.written} transactions were acknowledged; each was read once, in order.",
        f"A cluster of 3 nodes and {plan.shards} shards: {DURABILITY}.",
        *errors[:10],
    )
