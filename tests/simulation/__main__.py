"""Simulate the whole system: python -m tests.simulation --seeds 1000

A seed says all of a run: what clients do, what goes wrong, who runs when. Ends with status 1 if anything was
wrong, and says how to see it again.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.simulation import report as reports
from tests.simulation import soak
from tests.simulation.system import mistakes
from tests.simulation.system.plan import Plan, load, save
from tests.simulation.system.planning import make_plan
from tests.simulation.system.run import Outcome, carry_out
from tests.simulation.system.shrinking import Shrinking
from tests.simulation.system.story import tell

STEPS = 120


def main() -> int:
    """Do it."""
    given = _arguments()
    gc.freeze()
    if given.mistake == "all":
        return _find_mistakes(given, mistakes.names())
    if given.mistake is not None:
        return _find_mistakes(given, [given.mistake])
    if given.replay is not None:
        return _replay(given)
    if given.render is not None:
        print(reports.render(reports.load(given.render)), end="")
        return 0
    if (given.hours, given.minutes, given.workers, given.report) != (None, None, None, None):
        return _soak(given)
    return _search(given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.simulation", description=__doc__.split(":")[0]
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="run so many seeds (default 100)")
    parser.add_argument("--seed", type=int, metavar="S", help="the first seed, or the only one")
    parser.add_argument("--hours", type=float, metavar="N", help="run seeds for so long (a soak)")
    parser.add_argument("--minutes", type=float, metavar="M", help="the same, in minutes")
    parser.add_argument("--workers", type=int, metavar="K", help="processes (default: cores)")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write what came of a soak, as JSON, and stories beside it",
    )
    parser.add_argument("--render", type=Path, metavar="FILE", help="print a report as Markdown")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"deeds of a run ({STEPS})")
    parser.add_argument("--shards", type=int, default=1, help="shards of the server (1)")
    parser.add_argument(
        "--replay", metavar="FILE|SEED", help="run a plan again, and tell all of it"
    )
    parser.add_argument("--shrink", action="store_true", help="make a plan that fails shorter")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the plan that failed")
    parser.add_argument("--mistake", metavar="NAME|all", help="plant a mistake, and find it")
    parser.add_argument("--json", action="store_true", help="one object, for programs")
    given = parser.parse_args()
    if (given.workers or 1) < 1:
        parser.error("--workers: at least one process must do the work")
    if given.mistake not in (None, "all", *mistakes.names()):
        parser.error(f"the mistakes are {', '.join(mistakes.names())}")
    return given


# Searching.


def _search(given: argparse.Namespace) -> int:
    begun = time.monotonic()
    first = 1 if given.seed is None else given.seed
    count = given.seeds or (1 if given.seed is not None else 100)
    totals: Counter[str] = Counter()
    failed: list[Outcome] = []
    runs = 0
    while runs < count:
        outcome = _run(make_plan(first + runs, given.steps, given.shards))
        runs += 1
        totals.update({k: v for k, v in outcome.figures.items() if isinstance(v, int | float)})
        if outcome.findings:
            failed.append(outcome)
            _report(given, outcome)
    _summary(given, runs, failed, totals, time.monotonic() - begun)
    return 1 if failed else 0


def _run(plan: Plan) -> Outcome:
    outcome = carry_out(plan)
    gc.collect()
    return outcome


def _report(given: argparse.Namespace, outcome: Outcome) -> None:
    """A run went wrong."""
    if given.shrink:
        outcome = Shrinking(outcome).shrink()
    if given.save is not None:
        save(outcome.plan, given.save)
    if given.json:
        return
    if given.shrink:
        print(tell(outcome))
    else:
        print(f"seed {outcome.plan.seed}: {len(outcome.findings)} findings")
        print("\n".join(f"    {it}" for it in outcome.findings[:5]))
        print(f"    again: python -m tests.simulation --seed {outcome.plan.seed} --shrink")


def _summary(
    given: argparse.Namespace,
    runs: int,
    failed: list[Outcome],
    totals: Counter[str],
    elapsed_s: float,
) -> None:
    if given.json:
        found: dict[str, Any] = {
            "runs": runs,
            "failed": {it.plan.seed: it.findings for it in failed},
            "totals": dict(totals),
            "elapsed_s": round(elapsed_s, 1),
        }
        print(json.dumps(found))
        return
    print(
        f"{runs} runs, {len(failed)} of them wrong; {totals['operations']:.0f} operations, "
        f"{totals['faults']:.0f} faults, {totals['server_starts']:.0f} starts of the server, "
        f"{totals['virtual_s'] / 3600:.1f} h of virtual time in {elapsed_s:.0f} s"
    )


def _soak(given: argparse.Namespace) -> int:
    """Many seeds, in several processes. Failures are shrunk, whether that was asked for or not."""
    timed = [
        it
        for it in (given.hours and given.hours * 3600, given.minutes and given.minutes * 60)
        if it
    ]
    assignment = soak.Assignment(
        first=1 if given.seed is None else given.seed,
        count=given.seeds or (None if timed else 100),
        duration_s=min(timed) if timed else None,
        steps=given.steps,
        workers=given.workers or len(os.sched_getaffinity(0)),
    )
    command = shlex.join(["python", "-m", "tests.simulation", *sys.argv[1:]])
    found = soak.soak(assignment, given.report, command, soak.say)
    if given.json:
        print(reports.encode(found).decode())
    else:
        print(
            f"{found.runs} runs, {len(found.failures)} of them wrong; {found.ended}; "
            f"{found.wall_s:.0f} s, {found.cpu_s:.0f} s of processors; digest {found.trace}"
        )
    return 1 if found.failures else 0


# One again.


def _replay(given: argparse.Namespace) -> int:
    path = Path(given.replay)
    is_seed = given.replay.isdigit() and not path.exists()
    outcome = _run(
        make_plan(int(given.replay), given.steps, given.shards) if is_seed else load(path)
    )
    if given.shrink and outcome.findings:
        outcome = Shrinking(outcome).shrink()
    if given.save is not None:
        save(outcome.plan, given.save)
    if given.json:
        print(json.dumps({"digest": outcome.digest, "findings": outcome.findings}))
    else:
        print(tell(outcome, whole=not given.shrink))
    return 1 if outcome.findings else 0


# Mistakes.


def _find_mistakes(given: argparse.Namespace, names: list[str]) -> int:
    """Find each of them. It is an error if one stays hidden."""
    seeds = given.seeds or 100
    table: dict[str, dict[str, Any] | None] = {}
    for name in names:
        shards = max(given.shards, mistakes.known()[name].shards)
        with mistakes.planted(name):
            outcome = _first_wrong(given.seed or 1, seeds, given.steps, shards)
            if outcome is not None and given.shrink:
                outcome = Shrinking(outcome).shrink()
                print(tell(outcome))
        table[name] = None if outcome is None else _row(outcome, given.seed or 1)
        if not given.json:
            print(_line(name, table[name], seeds), flush=True)
    if given.json:
        print(json.dumps(table))
    return 0 if all(table.values()) else 1


def _first_wrong(first: int, seeds: int, steps: int, shards: int) -> Outcome | None:
    for seed in range(first, first + seeds):
        outcome = _run(make_plan(seed, steps, shards))
        if outcome.findings:
            return outcome
    return None


def _row(outcome: Outcome, first: int) -> dict[str, Any]:
    return {
        "seeds": outcome.plan.seed - first + 1,
        "kinds": sorted(outcome.kinds),
        "finding": outcome.findings[0],
        "deeds": len(outcome.plan.deeds),
        "faults": len(outcome.plan.faults),
    }


def _line(name: str, row: dict[str, Any] | None, seeds: int) -> str:
    if row is None:
        return f"{name:24} NOT FOUND in {seeds} seeds"
    return f"{name:24} {row['seeds']:3} seeds: {', '.join(row['kinds'])}"


if __name__ == "__main__":
    sys.exit(main())
