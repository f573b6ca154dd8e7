"""What `cluster` found, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tstreams.cluster.engines.nats import find_nats

from .cluster_plan import (
    RATIOS,
    READ,
    SCALE,
    SUBJECTS,
    WORKLOADS,
    WRITE,
    Key,
    Measured,
    Phase,
    Plan,
)
from .interface import Report, Table
from .kafka import VERSION as KAFKA_VERSION
from .machine import filesystem_of, machine_facts, nats_version, package_versions
from .report import grouped
from .rounds import Spread, ratios

MODES = {
    WRITE: "transactions whose acknowledgement came, on three copies",
    SCALE: "the same on one server without a cluster, from clients that cost almost nothing",
    READ: "items read back whose length was taken; their number and the sum of lengths are checked",
}
_COSTS: dict[str, Callable[[Phase], float]] = {
    "servers": lambda it: it.servers_cpu_s,
    "engine": lambda it: it.engine_cpu_s,
    "clients": lambda it: it.clients_cpu_s,
}


def make_report(
    plan: Plan,
    measured: Measured,
    durability: dict[str, str],
    missing: dict[str, str],
    folder: Path,
    seconds: float,
) -> Report:
    """Everything that is to be shown; `missing` are subjects that could not be measured, and why."""
    measured = {key: measured[key] for key in sorted(measured, key=_order)}
    found = {
        name: ratios(_rates(measured, ours), _rates(measured, theirs))
        for name, (ours, theirs, _) in RATIOS.items()
    }
    data = {
        "benchmark": "cluster",
        "ratios": {name: ratio.as_dict(3)["median"] for name, ratio in found.items()},
        "targets": {name: target for name, (_, _, target) in RATIOS.items()},
        "ratio_rounds": {name: ratio.as_dict(3)["rounds"] for name, ratio in found.items()},
        "copies": 3,
        "fsync": "on",
        "durability": durability,
        "counted": MODES,
        "results": [_result(key, phases) for key, phases in measured.items()],
        "missing": missing,
        "shards": plan.shards,
        "window": plan.window,
        "phase_seconds": plan.seconds,
        "read_transactions": plan.read_transactions,
        "rounds": plan.rounds,
        "filesystem": filesystem_of(folder),
        "machine": machine_facts(),
        "versions": _versions(missing),
        "seconds": round(seconds, 1),
    }
    notes = [f"{subject} was left out: {reason}" for subject, reason in missing.items()]
    notes += [f"{name}: {how}." for name, how in durability.items()]
    notes.append("; ".join(f"{mode}: {what}" for mode, what in MODES.items()) + ".")
    notes.append(
        "µs: processor time of a transaction at the servers, at what they stand on, and at the clients. idle: the share "
        "of the machine's processor time that was left. All on one "
        f"{data['filesystem']} filesystem and one machine: three copies share its disk."
    )
    return Report(data, (*_tables(plan, measured), _ratios_table(found)), tuple(notes))


def _order(key: Key) -> tuple[int, int, int]:
    mode, subject, workload = key
    return list(MODES).index(mode), WORKLOADS.index(workload), SUBJECTS.index(subject)


def _rates(measured: Measured, key: Key) -> Spread:
    return Spread(tuple(phase.items_rate for phase in measured.get(key, ())))


def _cost_us(phases: list[Phase], cost: Callable[[Phase], float]) -> Spread:
    return Spread(tuple(cost(it) / it.transactions * 1e6 for it in phases if it.transactions))


def _result(key: Key, phases: list[Phase]) -> dict[str, Any]:
    mode, subject, workload = key
    rates = Spread(tuple(phase.items_rate for phase in phases))
    return {
        "mode": mode,
        "subject": subject,
        "items": workload.items,
        "item_bytes": workload.item_bytes,
        "clients": workload.clients,
        "unit": "items/s",
        **rates.as_dict(),
        "transactions_per_s": round((rates.median or 0) / workload.items),
        **{
            f"{name}_us_per_transaction": _cost_us(phases, cost).as_dict(1)
            for name, cost in _COSTS.items()
        },
        "idle": Spread(tuple(phase.idle for phase in phases)).as_dict(3),
    }


def _versions(missing: dict[str, str]) -> dict[str, str | None]:
    nats = find_nats()
    return {
        **package_versions("tstreams", "uvloop", "nats-py", "kazoo", "confluent-kafka"),
        "nats-server": nats_version(nats) if nats is not None else None,
        "kafka": None if "kafka" in missing else KAFKA_VERSION,
    }


def _tables(plan: Plan, measured: Measured) -> list[Table]:
    """One for each mode."""
    tables: dict[str, list[tuple[str, ...]]] = {}
    for (mode, subject, workload), phases in measured.items():
        rates = Spread(tuple(phase.items_rate for phase in phases))
        costs = [_cost_us(phases, cost).median or 0.0 for cost in _COSTS.values()]
        idle = Spread(tuple(phase.idle for phase in phases)).median or 0.0
        row = (
            subject,
            workload.shape,
            grouped(rates.median),
            f"{grouped(min(rates.rounds))} .. {grouped(max(rates.rounds))}",
            *(f"{cost:.1f}" if cost else "-" for cost in costs),
            f"{idle:.0%}",
        )
        tables.setdefault(mode, []).append(row)
    costs_of = [f"{name} µs" for name in _COSTS]
    columns = ("subject", "transaction", "items/s", "min .. max", *costs_of, "idle")
    how = f"4 client processes, window {plan.window}, {plan.rounds} rounds"
    return [Table(f"{mode}: {how}", columns, tuple(rows)) for mode, rows in tables.items()]


def _ratios_table(found: dict[str, Spread]) -> Table:
    rows = []
    for name, ratio in found.items():
        target = RATIOS[name][2]
        median = "-" if ratio.median is None else f"{ratio.median:.2f}"
        low, high = min(ratio.rounds, default=None), max(ratio.rounds, default=None)
        spread = "-" if low is None or high is None else f"{low:.2f} .. {high:.2f}"
        rows.append((name, median, "-" if target is None else f"{target:.2f}", spread))
    return Table("ratios within a round", ("ratio", "median", "target", "min .. max"), tuple(rows))
