"""What `durable` found, as tables and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tstreams.cluster.engines.nats import find_nats

from .durable_clients import WRITERS
from .durable_plan import (
    APPEND,
    DRAIN,
    RATIOS,
    WRITE,
    Key,
    Measured,
    Phase,
    Plan,
    Subject,
)
from .interface import Report, Table
from .kafka import VERSION as KAFKA
from .machine import (
    filesystem_of,
    find_redis,
    machine_facts,
    nats_version,
    package_versions,
    postgres_version,
    redis_version,
)
from .postgres import find_postgres
from .rabbitmq import find_rabbitmq, rabbitmq_version
from .report import grouped
from .rounds import Spread, ratios

COUNTED = {
    WRITE: "items whose transaction was acknowledged",
    DRAIN: "items read back whose length was taken; their number and the sum of lengths are checked",
    APPEND: "items of 1 KiB in batches of 64; the plain file gets as many batches per fdatasync",
}
CEILING = (
    "The ceiling's client packs the items as tstreams does; its server appends and syncs, no more."
)


def make_report(
    plan: Plan,
    measured: Measured,
    subjects: list[Subject],
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
    durability = {subject.name: subject.durability for subject in subjects}
    data = {
        "benchmark": "durable",
        "ratios": {name: ratio.as_dict(3)["median"] for name, ratio in found.items()},
        "targets": {name: target for name, (_, _, target) in RATIOS.items()},
        "ratio_rounds": {name: ratio.as_dict(3)["rounds"] for name, ratio in found.items()},
        "fsync": "on",
        "durability": durability,
        "counted": COUNTED,
        "results": [_result(key, phases) for key, phases in measured.items()],
        "missing": missing,
        "window": plan.window,
        "phase_seconds": plan.seconds,
        "drained_transactions": plan.drained_transactions,
        "rounds": plan.rounds,
        "filesystem": filesystem_of(folder),
        "machine": machine_facts(),
        "versions": _versions(missing),
        "seconds": round(seconds, 1),
    }
    notes = [f"{subject} was left out: {reason}" for subject, reason in missing.items()]
    modes = "; ".join(f"{name}: {mode}" for name, mode in durability.items())
    notes.append(
        f"fsync is on where nothing else is said. {modes}. All on one {data['filesystem']} filesystem."
    )
    notes.append("; ".join(f"{mode} counts {what}" for mode, what in COUNTED.items()) + ".")
    notes.append(CEILING)
    notes.append("server µs: processor time that one transaction costs the server process.")
    return Report(data, (*_tables(plan, measured), _ratios_table(found)), tuple(notes))


def _order(key: Key) -> tuple[int, int, int, int, int]:
    """As tables show it: small transactions first, contestants in one order, whoever began."""
    mode, subject, workload = key
    modes, subjects = (WRITE, DRAIN, APPEND), (*WRITERS, "file")
    shape = (workload.clients, workload.item_bytes, workload.items)
    return modes.index(mode), *shape, subjects.index(subject)


def _rates(measured: Measured, key: Key) -> Spread:
    return Spread(tuple(phase.items_rate for phase in measured.get(key, ())))


def _server_us(phases: list[Phase]) -> Spread:
    """Processor time of the server for one transaction, its system calls included."""
    return Spread(
        tuple(
            phase.server_cpu_s / phase.transactions * 1e6
            for phase in phases
            if phase.server_cpu_s is not None and phase.transactions
        )
    )


def _result(key: Key, phases: list[Phase]) -> dict[str, Any]:
    mode, subject, workload = key
    rates = Spread(tuple(phase.items_rate for phase in phases))
    result: dict[str, Any] = {
        "mode": mode,
        "subject": subject,
        "items": workload.items,
        "item_bytes": workload.item_bytes,
        "clients": workload.clients if subject != "file" else 0,
        "unit": "items/s",
        **rates.as_dict(),
        "transactions_per_s": round((rates.median or 0) / workload.items),
    }
    if phases[0].server_cpu_s is not None:
        result["server_us_per_transaction"] = _server_us(phases).as_dict(1)
    return result


def _versions(missing: dict[str, str]) -> dict[str, str | None]:
    redis, nats, postgres, rabbitmq = find_redis(), find_nats(), find_postgres(), find_rabbitmq()
    packages = ("tstreams", "uvloop", "redis", "hiredis", "nats-py", "confluent-kafka", "psycopg")
    return {
        **package_versions(*packages),
        "redis-server": redis_version(redis) if redis is not None else None,
        "nats-server": nats_version(nats) if nats is not None else None,
        "kafka": None if "kafka" in missing else KAFKA,
        "postgres": postgres_version(postgres) if postgres is not None else None,
        "rabbitmq-server": None if isinstance(rabbitmq, str) else rabbitmq_version(rabbitmq),
    }


def _tables(plan: Plan, measured: Measured) -> list[Table]:
    """One for each mode and number of clients."""
    tables: dict[tuple[str, int], list[tuple[str, ...]]] = {}
    for (mode, subject, workload), phases in measured.items():
        rates = Spread(tuple(phase.items_rate for phase in phases))
        cost = _server_us(phases).median
        row = (
            subject,
            workload.shape,
            grouped(rates.median),
            f"{grouped(min(rates.rounds))} .. {grouped(max(rates.rounds))}",
            "-" if cost is None else f"{cost:.1f}",
        )
        tables.setdefault((mode, workload.clients), []).append(row)
    columns = ("subject", "transaction", "items/s", "min .. max", "server µs")
    return [
        Table(
            f"{mode}: {clients} client processes, window {plan.window}, {plan.rounds} rounds",
            columns,
            tuple(rows),
        )
        for (mode, clients), rows in tables.items()
    ]


def _ratios_table(found: dict[str, Spread]) -> Table:
    rows = []
    for name, ratio in found.items():
        target = RATIOS[name][2]
        median = "-" if ratio.median is None else f"{ratio.median:.2f}"
        low, high = min(ratio.rounds, default=None), max(ratio.rounds, default=None)
        spread = "-" if low is None or high is None else f"{low:.2f} .. {high:.2f}"
        rows.append((name, median, "-" if target is None else f"{target:.2f}", spread))
    return Table("ratios within a round", ("ratio", "median", "target", "min .. max"), tuple(rows))
