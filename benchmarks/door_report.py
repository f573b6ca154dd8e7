"""What `door` found, as tables and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .durable_plan import ONE_ITEM, TYPICAL, Phase, Workload
from .interface import Report, Table
from .machine import filesystem_of, machine_facts, package_versions
from .report import grouped
from .rounds import Spread, ratios

ALONE, WATCHED, CROWDED = "alone", "watched", "crowded"
TARGET = 0.9
WORKLOADS = {"batches": TYPICAL, "one_item": ONE_ITEM}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    seconds: float
    rounds: int
    window: int
    idle: int
    slow: int


@dataclass
class Found:
    """The phases of all rounds, and what stood for a console."""

    phases: dict[tuple[str, Workload], list[Phase]] = field(default_factory=dict)
    page: str = ""
    cores: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By condition: processors that the front door was busy with, and those before it."""

    def spend(
        self,
        condition: str,
        phase: Phase,
        before_s: tuple[float, float],
        after_s: tuple[float, float],
    ) -> None:
        """What others than the server and its clients used up in a phase."""
        front_door, others = (
            max(0.0, after - before) / phase.seconds
            for before, after in zip(before_s, after_s, strict=True)
        )
        self.cores.setdefault(condition, []).append((front_door, others))

    def busy(self, condition: str) -> dict[str, float]:
        """The same, as the mean of all phases."""
        found = self.cores[condition]
        front_door, others = (sum(it) / len(found) for it in zip(*found, strict=True))
        return {"front_door": round(front_door, 3), "before_it": round(others, 3)}

    def keep(self, round_number: int, condition: str, workload: Workload, phase: Phase) -> None:
        """One more: those of the same round are added up."""
        phases = self.phases.setdefault((condition, workload), [])
        if round_number < len(phases):
            phases[round_number] = _sum(phases[round_number], phase)
        else:
            phases.append(phase)

    def rates(self, condition: str, workload: Workload) -> Spread:
        """Items per second, round by round."""
        return Spread(tuple(it.items_rate for it in self.phases[condition, workload]))

    def server_us(self, condition: str, workload: Workload) -> Spread:
        """Processor time of the server for one transaction."""
        return Spread(
            tuple(
                (it.server_cpu_s or 0.0) / it.transactions * 1e6
                for it in self.phases[condition, workload]
                if it.transactions
            )
        )


def _sum(one: Phase, other: Phase) -> Phase:
    return Phase(
        one.transactions + other.transactions,
        one.items + other.items,
        one.seconds + other.seconds,
        (one.server_cpu_s or 0.0) + (other.server_cpu_s or 0.0),
    )


def make_report(plan: Plan, found: Found, folder: Path, seconds: float) -> Report:
    """Everything that is to be shown."""
    conditions = {
        ALONE: "no HTTP",
        WATCHED: f"HTTP, metrics scraped each second, and {found.page}",
        CROWDED: f"HTTP, {grouped(plan.idle)} idle connections, {plan.slow} slow HTTP clients",
    }
    compared = {
        f"{condition}_vs_{ALONE}_{name}": ratios(
            found.rates(condition, workload), found.rates(ALONE, workload)
        )
        for condition in (WATCHED, CROWDED)
        for name, workload in WORKLOADS.items()
    }
    data: dict[str, Any] = {
        "benchmark": "door",
        "ratios": {name: it.as_dict(3)["median"] for name, it in compared.items()},
        "targets": dict.fromkeys(compared, TARGET),
        "ratio_rounds": {name: it.as_dict(3)["rounds"] for name, it in compared.items()},
        "fsync": "on",
        "durability": "fdatasync once per group, before the replies",
        "conditions": conditions,
        "cores_busy": {condition: found.busy(condition) for condition in found.cores},
        "results": [
            {
                "condition": condition,
                "items": workload.items,
                "item_bytes": workload.item_bytes,
                "clients": workload.clients,
                "unit": "items/s",
                **found.rates(condition, workload).as_dict(),
                "server_us_per_transaction": found.server_us(condition, workload).as_dict(1),
            }
            for condition, workload in found.phases
        ],
        "window": plan.window,
        "phase_seconds": plan.seconds,
        "rounds": plan.rounds,
        "idle": plan.idle,
        "slow": plan.slow,
        "filesystem": filesystem_of(folder),
        "machine": machine_facts(),
        "versions": package_versions("tstreams", "uvloop", "starlette", "uvicorn"),
        "seconds": round(seconds, 1),
    }
    notes = [f"{name}: {text}." for name, text in conditions.items()]
    for condition, busy in data["cores_busy"].items():
        notes.append(
            f"{condition}: the front door was busy with {busy['front_door']:.3f} processors, those before "
            f"it with {busy['before_it']:.3f}."
        )
    notes.append(f"fsync is on: {data['durability']}. One {data['filesystem']} filesystem.")
    notes.append("Idle connections have said hello, and are silent. server µs: its processor time.")
    return Report(data, (_rates_table(plan, found), _ratios_table(compared)), tuple(notes))


def _rates_table(plan: Plan, found: Found) -> Table:
    rows = []
    for workload in WORKLOADS.values():
        for condition in (ALONE, WATCHED, CROWDED):
            rates = found.rates(condition, workload)
            server = found.server_us(condition, workload).median or 0.0
            rows.append(
                (
                    f"{workload}, {condition}",
                    grouped(rates.median or 0),
                    grouped(min(rates.rounds)),
                    grouped(max(rates.rounds)),
                    f"{server:.1f}",
                )
            )
    title = f"items/s, window {plan.window}, {plan.rounds} rounds of twice {plan.seconds:g} s"
    return Table(title, ("", "median", "min", "max", "server µs"), tuple(rows))


def _ratios_table(compared: dict[str, Spread]) -> Table:
    rows = tuple(
        (
            name,
            f"{it.median or 0:.3f}",
            f"{min(it.rounds):.3f}",
            f"{max(it.rounds):.3f}",
            f">= {TARGET}",
        )
        for name, it in compared.items()
    )
    return Table("ratios within a round", ("", "median", "min", "max", "wanted"), rows)
