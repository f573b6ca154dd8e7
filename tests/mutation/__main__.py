"""Does a test notice, if a rule is changed? python -m tests.mutation

Tries all mutants of `src/tstreams/core`. What is known is kept in `build/mutants.jsonl`: a run that is ended goes on
where it was; `--again` tries survivors anew, after tests were written. Ends with status 1 if a mutant survives that
`tests/mutation/explained.txt` does not explain.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import msgspec

from tests.mutation.explained import Explained
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.planting import path_of
from tests.mutation.trial import (
    KILLED,
    SURVIVED,
    TESTS,
    Map,
    Verdict,
    attempt,
    draw_map,
    load_tests,
    simulate,
)

MODULES = (
    "transitions",
    "state",
    "rules",
    "shard",
    "staging",
    "preparing",
    "groups",
    "copying",
    "overruling",
    "waits",
    "facts",
    "records",
)
"""Those with the promises first."""


class Result(msgspec.Struct, frozen=True):
    """What became of a mutant of a module, as it was then."""

    source: str
    module: str
    number: int
    what: str
    by: str = ""
    simulated: bool = False
    """Whether the simulations have had their try."""


def main() -> int:
    """Do it."""
    given = _arguments()
    path: Path = given.results
    mutants = [it for name in given.module or MODULES for it in mutants_of(path_of(name))]
    mutants = [it for it in mutants if given.number is None or it.number in given.number]
    if given.list:
        print(*mutants, sep="\n")
        return 0
    path.parent.mkdir(exist_ok=True)
    known = _read(path)
    waiting = [it for it in mutants if _is_waiting(known.get(_key(it)), given)]
    if waiting and not given.show:
        begun_s = time.monotonic()
        load_tests(given.tests or TESTS)
        tests = draw_map(given.tests or TESTS)
        print(
            f"{len(waiting)} of {len(mutants)} mutants; tests: {sum(tests.seconds.values()):.0f} s"
        )
        _try_all(waiting, tests, given, begun_s)
        known = _read(path)
    return _judge(mutants, known)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__.split("\n")[0])
    parser.add_argument("--module", action="append", choices=MODULES, help="only this one")
    parser.add_argument("--number", action="append", type=int, help="only this mutant of it")
    parser.add_argument("--tests", action="append", help="with these tests, instead of all")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so long")
    workers = 3 * len(os.sched_getaffinity(0))  # scenarios wait more than they compute
    parser.add_argument("--workers", type=int, default=workers, help=f"processes ({workers})")
    parser.add_argument("--simulate", action="store_true", help="let simulations try the survivors")
    parser.add_argument("--again", action="store_true", help="try survivors anew")
    parser.add_argument("--show", action="store_true", help="try nothing, print what is known")
    parser.add_argument("--list", action="store_true", help="print all mutants")
    parser.add_argument("--results", type=Path, default=Path("build/mutants.jsonl"))
    return parser.parse_args()


def _is_waiting(known: Result | None, given: argparse.Namespace) -> bool:
    if known is None:
        return not given.simulate
    if known.what != SURVIVED:
        return False
    return bool(given.again) or (given.simulate and not known.simulated)


# What is known.

_sources: dict[str, str] = {}


def _source(module: str) -> str:
    if module not in _sources:
        path = path_of(module)
        changes = "".join(map(str, mutants_of(path)))
        digest = blake2b(path.read_bytes() + changes.encode(), digest_size=6)
        _sources[module] = digest.hexdigest()
    return _sources[module]


def _key(mutant: Mutant) -> tuple[str, str, int]:
    return _source(mutant.module), mutant.module, mutant.number


def _read(path: Path) -> dict[tuple[str, str, int], Result]:
    """The last word on each."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    results = [msgspec.json.decode(it, type=Result) for it in lines]
    return {(it.source, it.module, it.number): it for it in results}


def _write(path: Path, mutant: Mutant, verdict: Verdict, simulated: bool) -> None:
    result = Result(*_key(mutant), verdict.what, verdict.by, simulated)
    with path.open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(result) + b"\n")


# Trying.


def _try_all(waiting: list[Mutant], tests: Map, given: argparse.Namespace, begun_s: float) -> None:
    until_s = begun_s + given.minutes * 60
    lanes = []
    for lane in range(given.workers):
        pid = os.fork()
        if pid == 0:
            _try_some(waiting[lane :: given.workers], tests, given, until_s)
        lanes.append(pid)
    for pid in lanes:
        _, status = os.waitpid(pid, 0)
        if status:
            raise ChildProcessError(f"a worker ended with {os.waitstatus_to_exitcode(status)}")


def _try_some(mutants: list[Mutant], tests: Map, given: argparse.Namespace, until_s: float) -> None:
    """In a process of its own, which ends here."""
    code = 1
    try:
        for mutant in mutants:
            if time.monotonic() > until_s:
                break
            verdict = (
                Verdict(SURVIVED) if given.simulate and not given.again else attempt(mutant, tests)
            )
            simulated = given.simulate and verdict.what == SURVIVED
            if simulated:
                verdict = simulate(mutant)
            _write(given.results, mutant, verdict, simulated)
            if verdict.what == SURVIVED:
                print(mutant, flush=True)
        code = 0
    except BaseException as error:
        print(f"{mutant}\n{error!r}", file=sys.stderr, flush=True)
    finally:
        sys.stdout.flush()
        os._exit(code)


# Judging.


def _judge(mutants: list[Mutant], known: dict[tuple[str, str, int], Result]) -> int:
    explained = Explained.read()
    counts: dict[str, Counter[str]] = {}
    unexplained = []
    for mutant in mutants:
        row = counts.setdefault(mutant.module, Counter())
        result = known.get(_key(mutant))
        row["mutants"] += 1
        row[_column(result)] += 1
        if result is not None and result.what == SURVIVED:
            row["explained"] += mutant in explained
            if mutant not in explained:
                unexplained.append(mutant)
    columns = ("mutants", "tests", "simulations", "endless", "survived", "explained", "not tried")
    print("| Module | " + " | ".join(columns) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name, row in {**counts, "all": sum(counts.values(), Counter())}.items():
        print(f"| `{name}` | " + " | ".join(str(row[it]) for it in columns) + " |")
    for mutant in unexplained:
        print(mutant)
    print(f"{len(unexplained)} survivors are not explained")
    return 1 if unexplained else 0


def _column(result: Result | None) -> str:
    if result is None:
        return "not tried"
    if result.what == KILLED:
        return "simulations" if result.simulated else "tests"
    return result.what


if __name__ == "__main__":
    sys.exit(main())
