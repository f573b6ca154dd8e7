"""Results as files: which run they are of, several of them together, the peers that took no part."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .groups import Data, groups_of
from .interface import BadOptions

ALL = "all.json"
"""The file that holds every report of one `python -m benchmarks all`."""
_ROOT = Path(__file__).resolve().parent.parent


def stamp(arguments: Sequence[str]) -> dict[str, Any]:
    """When, of which commit and with which command something is measured."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit,
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")) if commit else None,
        "command": " ".join(("python -m benchmarks", *arguments)),
    }


def _git(*words: str) -> str | None:
    """What git says; None if this is no repository, or there is no git."""
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run(
        [git, *words], cwd=_ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def together(reports: Iterable[Data], failed: Mapping[str, str]) -> Data:
    """Several reports as one object, with every figure as a row that says all about itself."""
    found = list(reports)
    return {
        "benchmark": "all",
        "failed": dict(failed),
        "left_out": left_out(found),
        "rows": [row for report in found for row in rows_of(report)],
        "reports": found,
    }


def rows_of(report: Data) -> list[Data]:
    """Every figure of a report by itself: what, whose, which version, how durable, on which machine."""
    return [
        {
            "benchmark": group.benchmark,
            "workload": group.workload,
            "subject": entry.subject,
            "version": entry.version,
            "durability": entry.durability,
            "machine": machine_of(report),
            "figure": group.figure,
            "less_is_better": group.less_is_better,
            **entry.spread.as_dict(3),
            "ours_against_it": group.ratio(entry).as_dict(3),
            "run": report.get("run"),
        }
        for group in groups_of(report)
        for entry in group.entries
    ]


def machine_of(report: Data) -> str:
    """The machine in one line."""
    facts = report["machine"]
    return f"{facts['cores']} cores, {facts['cpu']}, {facts['kernel']}, {facts['python']}"


def left_out(reports: Iterable[Data]) -> dict[str, dict[str, str]]:
    """By benchmark: who took no part, and why."""
    return {
        report["benchmark"]: dict(report["missing"]) for report in reports if report.get("missing")
    }


def load(places: Sequence[Path]) -> Data:
    """The reports in these files, and in the JSON files of these folders. The newest of each benchmark counts."""
    files = [file for place in places for file in _files(place)]
    if not files:
        raise BadOptions(f"there is no JSON in {', '.join(map(str, places))}")
    reports: list[Data] = []
    failed: dict[str, str] = {}
    for file in files:
        try:
            found = json.loads(file.read_text("utf-8"))
            reports += found["reports"] if found["benchmark"] == "all" else [found]
            failed |= found.get("failed", {})
        except (ValueError, KeyError, TypeError) as error:
            raise BadOptions(f"{file} is not what `--json` prints: {error!r}") from error
    newest: dict[str, Data] = {}
    for report in sorted(reports, key=_date):
        name = report["benchmark"]
        newest[name] = _merged(newest[name], report) if name in newest else report
    return together(newest.values(), {it: why for it, why in failed.items() if it not in newest})


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("*.json")) if place.is_dir() else [place]


def _date(report: Data) -> str:
    run = report.get("run") or {}
    return str(run.get("date", ""))


def _merged(older: Data, newer: Data) -> Data:
    """The newer one; but `growth` may be measured axis by axis."""
    if newer["benchmark"] != "growth":
        return newer
    axes = {
        axis["axis"]: {"run": report.get("run"), **axis}
        for report in (older, newer)
        for axis in report["axes"]
    }
    again = {axis["axis"] for axis in newer["axes"]}
    older_ones = older["grows_faster_than_it_should"]
    kept = [it for it in older_ones if it.partition(":")[0] not in again]
    too_fast = kept + newer["grows_faster_than_it_should"]
    return newer | {"axes": list(axes.values()), "grows_faster_than_it_should": too_fast}


def save(path: Path, data: Data) -> None:
    """Write one object; whoever reads it meanwhile sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", "utf-8")
    beside.replace(path)
