"""A campaign's report in Markdown, as it is kept under `docs/proof`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]


def render(report: Report) -> str:
    """The page."""
    facts = report["machine"]
    points = report["failpoints"]
    outcomes = report["outcomes"]
    lines = [
        "# A long campaign of torture",
        "",
        f"{report['seconds'] / 60:.0f} minutes of [torture](torture.md), "
        f"**{len(report['findings'])} findings**. Written by the program itself:",
        "",
        "```sh",
        f"python -m tests.torture {shlex.join(report['arguments'])} > REPORT.json",
        "python -m tests.torture --render REPORT.json > docs/proof/soak-torture.md",
        "```",
        "",
        *_table(
            ("What", ""),
            [
                ("Commit", f"`{report['commit']}`"),
                ("Begun", report["begun"]),
                ("Faults", f"{sum(report['faults'].values()):,}"),
                ("Deaths of the server at failpoints", f"{points['deaths']:,}"),
                ("Operations in the histories", f"{report['operations']:,}"),
                ("... acknowledged", f"{outcomes['ok']:,}"),
                ("... refused", f"{outcomes['refused']:,}"),
                ("... whose outcome nobody was told", f"{outcomes['unknown']:,}"),
                ("Clients that were fenced", f"{report['clients_fenced']:,}"),
                *((f"Longest time without {what}", _still(it))
                  for what, it in report["longest_standstill"].items()),
                ("Machine", f"{facts['cores']} cores, {facts['cpu']}, {facts['python']}"),
            ],
        ),
        "",
        "## What went wrong on purpose",
        "",
        *_counts("Fault", report["faults"]),
        "",
        *_skipped(report["skipped"]),
        "## Where the server was killed",
        "",
        f"At {len(points['hit'])} of {len(points['hit']) + len(points['never_hit'])} failpoints. "
        f"{points['not_reached_in_time']} times it did not come there in time, and lived on.",
        "",
        *_counts("Failpoint", points["hit"]),
        "",
        f"At which it never died: {_names(points['never_hit'])}.",
        "",
        "## Exactly once",
        "",
        *_table(("Sink", "Items there, of so many"), _sinks(report["exactly_once"])),
        "",
        "## Lives of the clients",
        "",
        *_counts("Client", report["client_lives"]),
        "",
        "## Memory, descriptors and threads",
        "",
        *_resources(report["resources"]),
        "",
        "## What was found",
        "",
        *([f"- {it}" for it in report["findings"]] or ["Nothing."]),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _still(found: Report) -> str:
    if not found:
        return "nobody did it twice"
    during = ", ".join(f"`{it}`" for it in found["faults"]) or "no fault"
    return f"{found['seconds']} s, during {during}"


def _skipped(skipped: Mapping[str, str]) -> list[str]:
    if not skipped:
        return []
    return ["Not made:", "", *(f"- `{name}`: {why}" for name, why in skipped.items()), ""]


def _sinks(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [
        (f"`{name}`", f"{count:,} of {counts[f'{name}_wanted']:,}")
        for name, count in counts.items()
        if not name.endswith("_wanted")
    ]


def _resources(found: Report) -> list[str]:
    columns = ("min", "median", "max", "last", "slope_per_minute", "growth")
    rows = [
        f"| {name.replace('_', ' ')} | {' | '.join(f'{it[column]:,}' for column in columns)} |"
        for name, it in found.items()
        if isinstance(it, Mapping) and it
    ]
    return [
        f"The server had {found['lives']} lives; the longest, of {found['longest_life_s']:.0f} s, "
        f"after a third of it as warm-up. {found['samples']:,} samples in all. "
        f"The verdict: **{found['verdict']}**.",
        "",
        f"| Of the server | {' | '.join(it.replace('_', ' ') for it in columns)} |",
        f"| --- | {' | '.join('---:' for _ in columns)} |",
        *rows,
    ]


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{it}`" for it in names) or "none"


def _counts(what: str, counts: Mapping[str, int]) -> list[str]:
    return _table((what, "Times"), [(f"`{name}`", f"{it:,}") for name, it in counts.items()])


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    return [
        f"| {head[0]} | {head[1]} |",
        "| --- | --- |",
        *(f"| {name} | {text} |" for name, text in rows),
    ]
