"""What `spark` found, as tables and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .interface import Report, Table
from .kafka import CONNECTOR_VERSION
from .kafka import VERSION as KAFKA
from .machine import filesystem_of, machine_facts, package_versions
from .report import grouped
from .rounds import Spread, ratios
from .spark_peers import ITEM_BYTES
from .spark_plan import (
    FLOOR_RATIO,
    FLOOR_TARGET,
    KINDS,
    MICROBATCH_ROWS,
    RATIOS,
    SUBJECTS,
    WAYS,
    WAYS_DONE,
    Key,
    Measured,
    Plan,
)

DURABILITY = {
    "tstreams": "fdatasync once per group, before the replies",
    "ceiling": "nothing is stored",
    "parquet": "left to the system",
    "kafka": "log.flush.interval.messages=1",
}


def make_report(
    plan: Plan, measured: Measured, missing: dict[str, str], folder: Path, seconds: float
) -> Report:
    """Everything that is to be shown; `missing` are subjects that could not be measured, and why."""
    found = {
        name: ratios(_rates(plan, measured, ours), _rates(plan, measured, theirs))
        for name, (ours, theirs, _) in RATIOS.items()
    }
    found[FLOOR_RATIO] = ratios(_micro(measured, "tstreams"), _micro(measured, "ceiling"))
    targets = {name: target for name, (_, _, target) in RATIOS.items()} | {
        FLOOR_RATIO: FLOOR_TARGET
    }
    data: dict[str, Any] = {
        "benchmark": "spark",
        "ratios": {name: ratio.as_dict(3)["median"] for name, ratio in found.items()},
        "targets": targets,
        "ratio_rounds": {name: ratio.as_dict(3)["rounds"] for name, ratio in found.items()},
        "fsync": "on",
        "durability": {name: it for name, it in DURABILITY.items() if name not in missing},
        "ways": WAYS_DONE,
        "rows": plan.rows,
        "row_bytes": ITEM_BYTES,
        "transaction_rows": plan.transaction_rows,
        "partitions": plan.partitions,
        "cores": plan.cores,
        "results": [_result(plan, measured, key) for key in _keys(measured)],
        "microbatch_rows": MICROBATCH_ROWS,
        "microbatches": plan.batches,
        "microbatch_ms": {
            name: _micro(measured, name).as_dict() for name in ("tstreams", "ceiling")
        },
        "missing": missing,
        "rounds": plan.rounds,
        "filesystem": filesystem_of(folder),
        "machine": machine_facts(),
        "versions": _versions(missing),
        "seconds": round(seconds, 1),
    }
    notes = [f"{subject} was left out: {reason}" for subject, reason in missing.items()]
    modes = "; ".join(f"{name}: {mode}" for name, mode in data["durability"].items())
    notes.append(f"fsync: {modes}. All on one {data['filesystem']} filesystem.")
    notes += [f"{name}: {way}." for name, way in WAYS_DONE.items() if name not in missing]
    versions = ", ".join(f"{name} {it}" for name, it in data["versions"].items() if it)
    notes.append(f"Versions: {versions}. Spark runs {plan.cores} tasks at a time.")
    notes.append(
        f"A micro-batch has {MICROBATCH_ROWS} rows, and its time is what Spark reports as triggerExecution; "
        "its floor is that of a trivial source and sink in Python."
    )
    return Report(data, (*_tables(plan, measured), _ratios_table(found, targets)), tuple(notes))


def _versions(missing: dict[str, str]) -> dict[str, str | None]:
    found = package_versions("tstreams", "pyspark", "pyarrow", "numpy", "uvloop")
    if "kafka" not in missing:
        found |= {"kafka": KAFKA, "spark-sql-kafka": CONNECTOR_VERSION}
    return found


def _keys(measured: Measured) -> list[Key]:
    order = [(name, way, kind) for way in WAYS for kind in KINDS for name in SUBJECTS]
    return [key for key in order if key in measured.seconds]


def _rates(plan: Plan, measured: Measured, key: Key) -> Spread:
    return Spread(tuple(plan.rows / it for it in measured.seconds.get(key, ())))


def _micro(measured: Measured, name: str) -> Spread:
    return Spread(tuple(measured.microbatch_ms.get(name, ())))


def _result(plan: Plan, measured: Measured, key: Key) -> dict[str, Any]:
    name, way, kind = key
    cpu = Spread(tuple(it / plan.rows * 1e6 for it in measured.server_cpu_s[key]))
    return {
        "subject": name,
        "way": way,
        "kind": kind,
        "rows_per_s": _rates(plan, measured, key).as_dict(),
        "server_us_per_row": cpu.as_dict(3) if name == "tstreams" else None,
    }


def _spread(spread: Spread) -> str:
    return f"{grouped(min(spread.rounds))} .. {grouped(max(spread.rounds))}"


def _tables(plan: Plan, measured: Measured) -> list[Table]:
    rows = []
    for name, way, kind in _keys(measured):
        rates = _rates(plan, measured, (name, way, kind))
        rows.append((f"{way} {kind}", name, grouped(rates.median), _spread(rates)))
    title = f"{grouped(plan.rows)} rows of {ITEM_BYTES} B, {plan.rounds} rounds"
    columns = ("way", "subject", "rows/s", "min .. max")
    micro = [
        (name, grouped(_micro(measured, name).median), _spread(_micro(measured, name)))
        for name in ("tstreams", "ceiling")
    ]
    return [
        Table(title, columns, tuple(rows)),
        Table(
            f"micro-batches of {MICROBATCH_ROWS} rows",
            ("subject", "ms", "min .. max"),
            tuple(micro),
        ),
    ]


def _ratios_table(found: dict[str, Spread], targets: dict[str, float | None]) -> Table:
    rows = []
    for name, ratio in found.items():
        target = targets[name]
        median = "-" if ratio.median is None else f"{ratio.median:.2f}"
        low, high = min(ratio.rounds, default=None), max(ratio.rounds, default=None)
        spread = "-" if low is None or high is None else f"{low:.2f} .. {high:.2f}"
        rows.append((name, median, "-" if target is None else f"{target:.2f}", spread))
    return Table("ratios within a round", ("ratio", "median", "target", "min .. max"), tuple(rows))
