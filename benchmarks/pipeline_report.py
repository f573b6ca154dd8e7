"""What `pipeline` found, as tables and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .interface import Report, Table
from .kafka import VERSION as KAFKA
from .machine import (
    filesystem_of,
    find_redis,
    machine_facts,
    package_versions,
    postgres_version,
    redis_version,
)
from .pipeline_plan import ITEM_BYTES, RATIOS, Key, Measured, Phase, Plan, Subject
from .pipeline_workers import WORKERS
from .postgres import find_postgres
from .report import grouped
from .rounds import Spread, percentile, ratios

COUNTED = (
    "items whose results were committed together with the place in the input; the number of items in "
    "every output is checked, and the last one"
)
LATENCY = (
    "A commit takes from the moment at which the results are there until its worker has noticed that it "
    "is acknowledged. ts.process has several under way, each of which takes effect only after the one "
    "before it; all others wait for each commit before they go on."
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
        "benchmark": "pipeline",
        "ratios": {name: ratio.as_dict(3)["median"] for name, ratio in found.items()},
        "targets": {name: target for name, (_, _, target) in RATIOS.items()},
        "ratio_rounds": {name: ratio.as_dict(3)["rounds"] for name, ratio in found.items()},
        "fsync": "on",
        "durability": durability,
        "ways": {subject.name: subject.way for subject in subjects},
        "counted": COUNTED,
        "item_bytes": ITEM_BYTES,
        "results": [_result(key, phases) for key, phases in measured.items()],
        "missing": missing,
        "phase_seconds": plan.seconds,
        "rounds": plan.rounds,
        "filesystem": filesystem_of(folder),
        "machine": machine_facts(),
        "versions": _versions(missing),
        "seconds": round(seconds, 1),
    }
    notes = [f"{subject} was left out: {reason}" for subject, reason in missing.items()]
    modes = "; ".join(f"{name}: {mode}" for name, mode in durability.items())
    notes.append(f"fsync is on everywhere. {modes}. All on one {data['filesystem']} filesystem.")
    notes += [f"{subject.name}: {subject.way}." for subject in subjects]
    notes.append(f"Counted are {COUNTED}.")
    notes.append(LATENCY)
    notes.append("server µs: processor time that one commit costs the server process.")
    return Report(data, (*_tables(plan, measured), _ratios_table(found)), tuple(notes))


def _order(key: Key) -> tuple[int, int, int]:
    subject, workload = key
    return workload.workers, workload.items, list(WORKERS).index(subject)


def _rates(measured: Measured, key: Key) -> Spread:
    return Spread(tuple(phase.items_rate for phase in measured.get(key, ())))


def _latency(phases: list[Phase], percent: int) -> Spread:
    return Spread(tuple(percentile(phase.latencies_us, percent) for phase in phases))


def _server_us(phases: list[Phase]) -> Spread:
    return Spread(tuple(phase.server_cpu_s / phase.commits * 1e6 for phase in phases))


def _result(key: Key, phases: list[Phase]) -> dict[str, Any]:
    subject, workload = key
    return {
        "subject": subject,
        "items": workload.items,
        "workers": workload.workers,
        "items_per_s": Spread(tuple(phase.items_rate for phase in phases)).as_dict(),
        "commits_per_s": Spread(tuple(phase.commits_rate for phase in phases)).as_dict(),
        "commit_p50_us": _latency(phases, 50).as_dict(),
        "commit_p99_us": _latency(phases, 99).as_dict(),
        "server_us_per_commit": _server_us(phases).as_dict(1),
    }


def _versions(missing: dict[str, str]) -> dict[str, str | None]:
    redis, postgres = find_redis(), find_postgres()
    packages = ("tstreams", "uvloop", "redis", "hiredis", "psycopg", "confluent-kafka")
    return {
        **package_versions(*packages),
        "redis-server": redis_version(redis) if redis is not None else None,
        "postgres": postgres_version(postgres) if postgres is not None else None,
        "kafka": None if "kafka" in missing else KAFKA,
    }


def _tables(plan: Plan, measured: Measured) -> list[Table]:
    """One for each number of workers."""
    tables: dict[int, list[tuple[str, ...]]] = {}
    for (subject, workload), phases in measured.items():
        rates = Spread(tuple(phase.items_rate for phase in phases))
        row = (
            subject,
            f"{workload.items} items",
            grouped(rates.median),
            f"{grouped(min(rates.rounds))} .. {grouped(max(rates.rounds))}",
            grouped(Spread(tuple(phase.commits_rate for phase in phases)).median),
            grouped(_latency(phases, 50).median),
            grouped(_latency(phases, 99).median),
            grouped(_server_us(phases).median),
        )
        tables.setdefault(workload.workers, []).append(row)
    columns = (
        "subject",
        "batch",
        "items/s",
        "min .. max",
        "commits/s",
        "p50 µs",
        "p99 µs",
        "server µs",
    )
    return [
        Table(f"{workers} worker processes, {plan.rounds} rounds", columns, tuple(rows))
        for workers, rows in tables.items()
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
