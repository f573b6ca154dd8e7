"""A run, told in words: what was planned, what happened, and what was wrong with it."""

from __future__ import annotations

from tests.simulation.system.run import Outcome

FINDINGS_SHOWN = 10


def tell(outcome: Outcome, whole: bool = False) -> str:
    """The story of a run. What goes over the network, and what auditors do in the end, is left out unless it is
    to be whole."""
    plan = outcome.plan
    lines = [f"seed {plan.seed}: {_verdict(outcome)}", ""]
    lines += ["Streams:"]
    lines += [f"  {it.name}, {it.partitions} partitions, ttl {it.ttl_ms} ms" for it in plan.streams]
    lines += ["", "What clients do:"]
    for client in plan.clients:
        lines += [f"  {deed}" for deed in plan.deeds_of(client)]
    if plan.faults:
        lines += ["", "What goes wrong:"]
        lines += [f"  {fault}" for fault in plan.faults]
    lines += ["", "What happens:"]
    lines += [f"  {line}" for line in outcome.trace if whole or _is_told(line)]
    if outcome.findings:
        lines += ["", "What is wrong with that:"]
        lines += [f"  {it}" for it in outcome.findings[:FINDINGS_SHOWN]]
        if len(outcome.findings) > FINDINGS_SHOWN:
            lines += [f"  ... and {len(outcome.findings) - FINDINGS_SHOWN} more"]
    lines += ["", f"digest {outcome.digest}"]
    return "\n".join(lines)


def _verdict(outcome: Outcome) -> str:
    return "nothing is wrong" if not outcome.findings else ", ".join(sorted(outcome.kinds))


def _is_told(line: str) -> bool:
    """Whether a line of the trace belongs into a short story."""
    who = line.split(maxsplit=2)[1]
    return ">" not in who and not who.startswith("auditor")
