"""What `latency` found, as tables and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tstreams.cluster.engines.nats import find_nats

from .interface import Report, Table
from .kafka import VERSION as KAFKA
from .latency_plan import ITEM_BYTES, RATIOS, Measured, Phase, Plan, Subject
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
from .rounds import Spread, percentile, ratios

COUNTED = "microseconds from before the send until the message is in the receiver's hands"


def make_report(
    plan: Plan,
    measured: Measured,
    subjects: list[Subject],
    missing: dict[str, str],
    folder: Path,
    seconds: float,
) -> Report:
    """Everything that is to be shown; `missing` are subjects that could not be measured, and why."""
    order = [subject.name for subject in subjects]
    measured = {name: measured[name] for name in order}
    found = {
        name: ratios(_spread(measured, ours, 50), _spread(measured, theirs, 50))
        for name, (ours, theirs, _) in RATIOS.items()
    }
    data = {
        "benchmark": "latency",
        "ratios": {name: ratio.as_dict(3)["median"] for name, ratio in found.items()},
        "targets": {name: target for name, (_, _, target) in RATIOS.items()},
        "ratio_rounds": {name: ratio.as_dict(3)["rounds"] for name, ratio in found.items()},
        "less_is_better": True,
        "durability": {subject.name: subject.durability for subject in subjects},
        "ways": {subject.name: subject.way for subject in subjects},
        "counted": COUNTED,
        "item_bytes": ITEM_BYTES,
        "results": [_result(name, phases) for name, phases in measured.items()],
        "missing": missing,
        "messages": plan.messages,
        "rate": plan.rate,
        "rounds": plan.rounds,
        "filesystem": filesystem_of(folder),
        "machine": machine_facts(),
        "versions": _versions(missing),
        "seconds": round(seconds, 1),
    }
    notes = [f"{subject} was left out: {reason}" for subject, reason in missing.items()]
    notes += [f"{it.name}: {it.way}; {it.durability}." for it in subjects]
    fewer = [f"{it.name} {plan.messages // it.few}" for it in subjects if it.few > 1]
    if fewer:
        notes.append(f"Of the messages of a phase, slow ones send fewer: {', '.join(fewer)}.")
    notes.append(f"Counted are {COUNTED}. Ratios are of p50, and less is better.")
    return Report(data, (_table(plan, measured), _ratios_table(found)), tuple(notes))


def _spread(measured: Measured, name: str, percent: int) -> Spread:
    phases = measured.get(name, ())
    return Spread(tuple(percentile(phase.latencies_us, percent) for phase in phases))


def _result(name: str, phases: list[Phase]) -> dict[str, Any]:
    measured = {name: phases}
    return {
        "subject": name,
        "p50_us": _spread(measured, name, 50).as_dict(),
        "p99_us": _spread(measured, name, 99).as_dict(),
        "sent_per_s": Spread(tuple(phase.sent_per_s for phase in phases)).as_dict(),
    }


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


def _table(plan: Plan, measured: Measured) -> Table:
    rows = []
    for name, phases in measured.items():
        p50, p99 = _spread(measured, name, 50), _spread(measured, name, 99)
        rate = Spread(tuple(phase.sent_per_s for phase in phases))
        spread = f"{grouped(min(p50.rounds))} .. {grouped(max(p50.rounds))}"
        rows.append((name, grouped(p50.median), spread, grouped(p99.median), grouped(rate.median)))
    title = f"{plan.messages} messages, one every {1_000_000 // plan.rate} µs, {plan.rounds} rounds"
    return Table(title, ("subject", "p50 µs", "min .. max", "p99 µs", "sent/s"), tuple(rows))


def _ratios_table(found: dict[str, Spread]) -> Table:
    rows = []
    for name, ratio in found.items():
        target = RATIOS[name][2]
        median = "-" if ratio.median is None else f"{ratio.median:.2f}"
        low, high = min(ratio.rounds, default=None), max(ratio.rounds, default=None)
        spread = "-" if low is None or high is None else f"{low:.2f} .. {high:.2f}"
        rows.append((name, median, "-" if target is None else f"{target:.2f}", spread))
    return Table(
        "ratios of p50 within a round", ("ratio", "median", "at most", "min .. max"), tuple(rows)
    )
