"""What came of a soak: which seeds were run, what happened in them, and what was wrong."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.machine import machine_facts

ROOT = Path(__file__).parents[2]


class Seed(msgspec.Struct, frozen=True):
    """What one seed came to."""

    number: int
    digest: str
    figures: dict[str, Any]


class Failure(msgspec.Struct, frozen=True):
    """A seed that went wrong. `story` and `plan` are of the shortest plan that was found for it."""

    seed: int
    findings: list[str]
    """Some of them, as they were before it was shrunk."""
    story: str = ""
    plan: str = ""

    @property
    def kinds(self) -> list[str]:
        return sorted({it.split(":")[0] for it in self.findings})


class Report(msgspec.Struct):
    """A soak."""

    commit: str
    """With `+changes` behind it if there were any that are not in it."""
    begun: str
    command: str
    steps: int
    workers: int
    machine: dict[str, str | int] = msgspec.field(default_factory=machine_facts)
    ended: str = ""
    """How: the time was up, all seeds were run, or a signal."""
    seeds: list[tuple[int, int]] = []
    """Those that were run: first and last of each row without a gap."""
    runs: int = 0
    trace: str = ""
    """The digest of the digests of all seeds, in their order: the same for the same seeds and commit."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    rss_mib_max: int = 0
    """Of the largest worker: they do not grow."""
    totals: dict[str, float] = {}
    faults: dict[str, int] = {}
    operations: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    refusals: dict[str, int] = {}
    failures: list[Failure] = []


class Tally:
    """Adds up what seeds came to."""

    def __init__(self) -> None:
        self._digests: dict[int, str] = {}
        self._counts: dict[str, Counter[str]] = {
            it: Counter() for it in ("totals", "faults", "operations", "outcomes", "refusals")
        }

    def __len__(self) -> int:
        return len(self._digests)

    def total(self, name: str) -> float:
        return self._counts["totals"][name]

    def add(self, seed: Seed) -> None:
        self._digests[seed.number] = seed.digest
        for name, value in seed.figures.items():
            if isinstance(value, Mapping):
                self._counts[name.removesuffix("_by_kind")].update(value)
            else:
                self._counts["totals"][name] += value

    def write_to(self, report: Report) -> None:
        report.runs = len(self._digests)
        report.seeds = _rows(sorted(self._digests))
        report.trace = _digest_of(self._digests)
        report.totals = {k: round(v, 1) for k, v in sorted(self._counts["totals"].items())}
        report.faults = dict(self._counts["faults"].most_common())
        report.operations = dict(self._counts["operations"].most_common())
        report.outcomes = dict(self._counts["outcomes"].most_common())
        report.refusals = dict(self._counts["refusals"].most_common())


def _rows(numbers: list[int]) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    for it in numbers:
        if rows and rows[-1][1] == it - 1:
            rows[-1] = (rows[-1][0], it)
        else:
            rows.append((it, it))
    return rows


def _digest_of(digests: dict[int, str]) -> str:
    found = blake2b(digest_size=16)
    for seed in sorted(digests):
        found.update(f"{seed} {digests[seed]}\n".encode())
    return found.hexdigest()


def commit() -> str:
    """Which commit this is, and whether anything was changed since. Not known: outside of a repository."""

    def git(*arguments: str) -> str:
        run = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    try:
        changes = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def encode(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report))


def save(report: Report, path: Path) -> None:
    """Whole or not at all: it is written again and again while the soak goes on."""
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(encode(report) + b"\n")
    beside.replace(path)


# As a page.


def render(report: Report) -> str:
    """The report in Markdown, as it is kept under `docs/proof`."""
    totals = report.totals
    facts = report.machine
    rows = ", ".join(f"{first} to {last}" for first, last in report.seeds) or "none"
    lines = [
        "# A soak of the simulation",
        "",
        f"{report.runs:,} seeds of [the simulation of the whole system](simulation.md), "
        f"**{len(report.failures):,} of them wrong**. Written by the program itself:",
        "",
        "```sh",
        report.command,
        "python -m tests.simulation --render REPORT.json > docs/proof/soak-simulation.md",
        "```",
        "",
        *_table(
            ("What", ""),
            [
                ("Commit", f"`{report.commit}`"),
                ("Begun", report.begun),
                ("Ended because", report.ended),
                ("Seeds", rows),
                ("Digest of all traces", f"`{report.trace}`"),
                ("Steps of a run", f"{report.steps:,}"),
                ("Wall time", f"{report.wall_s / 3600:.2f} h"),
                ("Processor time", f"{report.cpu_s / 3600:.2f} h in {report.workers} workers"),
                ("Virtual time", f"{totals.get('virtual_s', 0) / 3600:,.1f} h"),
                ("Operations in the histories", f"{totals.get('operations', 0):,.0f}"),
                ("Faults", f"{totals.get('faults', 0):,.0f}"),
                ("Starts of the server", f"{totals.get('server_starts', 0):,.0f}"),
                ("Connections", f"{totals.get('connections', 0):,.0f}"),
                ("Turns of event loops", f"{totals.get('turns', 0):,.0f}"),
                ("Memory of the largest worker", f"{report.rss_mib_max:,} MiB"),
                (
                    "Machine",
                    f"{facts.get('cores')} cores, {facts.get('cpu')}, {facts.get('python')}",
                ),
            ],
        ),
        "",
        "The same seeds at the same commit have the same digest, whenever and wherever the same Python runs them.",
        "",
        "## What went wrong on purpose",
        "",
        *_counts("Fault", report.faults),
        "",
        "## What clients did",
        "",
        *_counts("Operation", report.operations),
        "",
        "How it ended for them (`unknown`: the client was never told):",
        "",
        *_counts("Outcome", report.outcomes),
        "",
        "What they were refused, with the error that the faults explain:",
        "",
        *_counts("Error", report.refusals),
        "",
        "## What was found",
        "",
        *_failures(report.failures),
    ]
    return "\n".join(lines) + "\n"


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> list[str]:
    return [f"| {head[0]} | {head[1]} |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in rows)]


def _counts(what: str, counts: Mapping[str, int]) -> list[str]:
    rows = [(f"`{name}`", f"{count:,}") for name, count in counts.items()]
    return _table((what, "Times"), rows) if rows else ["None."]


def _failures(failures: list[Failure]) -> list[str]:
    lines: list[str] = []
    for it in failures:
        lines += [f"### Seed {it.seed}: {', '.join(it.kinds)}", ""]
        lines += ["```text", it.story or "\n".join(it.findings), "```", ""]
    return lines[:-1] if lines else ["Nothing."]
