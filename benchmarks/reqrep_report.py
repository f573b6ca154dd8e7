"""What `reqrep` found, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from .interface import Report, Table
from .machine import machine_facts, package_versions
from .report import grouped
from .rounds import Spread, ratios

ORIGINAL = "the original claimed 22 000 q/s with 12 clients on a 2012 Xeon"
DURABILITY = "none (messages only, nothing is stored)"
MODES = ("sequential", "pipelined")

RATIOS = {
    "tcp_vs_bare_tcp": ("moebius-tcp", "bare-tcp", "sequential", 0.6),
    "zmq_vs_bare_zmq": ("moebius-zmq", "bare-zmq", "sequential", 0.6),
    "tcp_vs_redis": ("moebius-tcp", "redis", "sequential", 0.7),
    "tcp_pipelined_vs_bare_zmq_pipelined": ("moebius-tcp", "bare-zmq", "pipelined", 0.8),
}
"""Name: (ours, theirs, mode, target)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done. Requests are those of one client."""

    clients: int
    requests: int
    pipelined_requests: int
    window: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One timed phase of one round."""

    requests_each: int
    requests: int
    seconds: float
    server_cpu_s: float

    @property
    def rate(self) -> float:
        """Requests per second of all clients together."""
        return self.requests / self.seconds

    @property
    def server_us(self) -> float:
        """Microseconds of processor time that a request cost the server, its system calls included."""
        return self.server_cpu_s / self.requests * 1e6


Measured: TypeAlias = dict[str, list[dict[str, Phase]]]
"""By subject: the phases of each round, by mode."""


def make_report(
    plan: Plan, measured: Measured, missing: dict[str, str], redis: str | None, seconds: float
) -> Report:
    """Everything that is to be shown; `missing` are subjects that could not be measured, and why."""
    found = {
        name: ratios(_rates(measured, ours, mode), _rates(measured, theirs, mode))
        for name, (ours, theirs, mode, _) in RATIOS.items()
    }
    data = {
        "benchmark": "reqrep",
        "ratios": {name: ratio.as_dict(3)["median"] for name, ratio in found.items()},
        "targets": {name: target for name, (_, _, _, target) in RATIOS.items()},
        "ratio_rounds": {name: ratio.as_dict(3)["rounds"] for name, ratio in found.items()},
        "results": _results(measured, missing),
        "clients": plan.clients,
        "requests": plan.requests,
        "pipelined_requests": plan.pipelined_requests,
        "window": plan.window,
        "rounds": plan.rounds,
        "original": ORIGINAL,
        "machine": machine_facts(),
        "versions": {**package_versions("msgspec", "uvloop", "pyzmq"), "redis": redis},
        "durability": DURABILITY,
        "seconds": round(seconds, 1),
    }
    notes = [f"{subject} was left out: {reason}" for subject, reason in missing.items()]
    notes.append("server µs: processor time that one request costs the server process.")
    notes.append(f"Durability: {DURABILITY}. For comparison: {ORIGINAL}.")
    return Report(data, (_rates_table(plan, measured), _ratios_table(found)), tuple(notes))


def _spread(
    measured: Measured, subject: str, mode: str, figure: Callable[[Phase], float]
) -> Spread:
    return Spread(tuple(figure(phases[mode]) for phases in measured.get(subject, ())))


def _rates(measured: Measured, subject: str, mode: str) -> Spread:
    return _spread(measured, subject, mode, lambda phase: phase.rate)


def _server_us(measured: Measured, subject: str, mode: str) -> Spread:
    return _spread(measured, subject, mode, lambda phase: phase.server_us)


def _results(measured: Measured, missing: dict[str, str]) -> list[dict[str, Any]]:
    results = []
    for subject in (*measured, *missing):
        for mode in MODES:
            result: dict[str, Any] = {"subject": subject, "mode": mode, "unit": "q/s"}
            result.update(_rates(measured, subject, mode).as_dict())
            if subject in missing:
                result["reason"] = missing[subject]
            else:
                result["requests_each"] = measured[subject][0][mode].requests_each
                result["server_us_per_request"] = _server_us(measured, subject, mode).as_dict(2)
            results.append(result)
    return results


def _rates_table(plan: Plan, measured: Measured) -> Table:
    rows = []
    for mode in MODES:
        for subject in measured:
            rates = _rates(measured, subject, mode)
            low, high = grouped(min(rates.rounds)), grouped(max(rates.rounds))
            server_us = _server_us(measured, subject, mode).median or 0
            row = (subject, mode, grouped(rates.median), f"{low} .. {high}", f"{server_us:.1f}")
            rows.append(row)
    title = f"{plan.clients} clients, {plan.rounds} rounds, windows of {plan.window}"
    columns = ("subject", "mode", "q/s, median", "min .. max", "server µs")
    return Table(title, columns, tuple(rows))


def _ratios_table(found: dict[str, Spread]) -> Table:
    rows = []
    for name, ratio in found.items():
        median = "-" if ratio.median is None else f"{ratio.median:.2f}"
        low, high = min(ratio.rounds, default=None), max(ratio.rounds, default=None)
        spread = "-" if low is None or high is None else f"{low:.2f} .. {high:.2f}"
        rows.append((name, median, f"{RATIOS[name][3]:.2f}", spread))
    return Table("ratios within a round", ("ratio", "median", "target", "min .. max"), tuple(rows))
