"""All results as Markdown and as plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import plots
from .groups import Data, Entry, Group, groups_of
from .growth_report import NAMES
from .report import figure_text, grouped
from .results import machine_of

TITLES = {
    "durable": "Durable transactions",
    "cluster": "Durable transactions on three copies",
    "failover": "When a node is gone",
    "pipeline": "Read, transform, write, exactly once",
    "latency": "From a commit to the subscriber",
    "spark": "Through Spark",
    "streams": "Very many streams",
    "history": "A long history",
    "door": "With HTTP, metrics, a console and a crowd",
    "views": "The first look at a million streams",
    "reqrep": "Requests and replies",
    "growth": "Growth",
}
"""In the order of the page."""


def render(results: Data, pictures: str) -> tuple[str, dict[str, str]]:
    """The Markdown, and the plots by the names of their files. `pictures` is where the text finds them."""
    reports = {report["benchmark"]: report for report in results["reports"]}
    machines = _lettered(reports)
    parts = [*_machines(machines)]
    drawn: dict[str, str] = {}
    for name, title in TITLES.items():
        if name not in reports:
            continue
        report = reports[name]
        letter = machines[machine_of(report)]
        parts += [f"### {title}", "", _run_line(report, letter), ""]
        if name == "growth":
            drawn |= _growth_plots(report)
            parts += _growth(report, pictures)
            continue
        groups = groups_of(report)
        shown = [group for group in groups if group.plotted]
        if shown:
            drawn[f"{name}.svg"] = plots.bars(title, shown)
            parts += [f"![{title}: medians and spread]({pictures}/{name}.svg)", ""]
        parts += [*_table(groups, letter), ""]
    parts += _left_out(results)
    return "\n".join(parts), drawn


def _lettered(reports: Mapping[str, Data]) -> dict[str, str]:
    """A letter for each machine; two reports of one machine share it."""
    lines = dict.fromkeys(machine_of(report) for report in reports.values())
    return {line: chr(ord("A") + number) for number, line in enumerate(lines)}


def _machines(machines: Mapping[str, str]) -> Iterator[str]:
    yield "| Machine | |"
    yield "| --- | --- |"
    for line, letter in machines.items():
        yield f"| {letter} | {line} |"
    yield ""


def _run_line(report: Data, letter: str) -> str:
    """Which run this is of."""
    run: dict[str, Any] = report.get("run") or {}
    changed = ", with changes" if run.get("changed") else ""
    versions = ", ".join(f"{name} {it}" for name, it in report["versions"].items() if it)
    disk = f"{report['filesystem']}, " if "filesystem" in report else ""
    rounds = report.get("rounds") or report["times"]  # `views` looks so many times at each
    return (
        f"`{run.get('command', 'unknown command')}`, {run.get('date', 'unknown date')}, commit "
        f"{run.get('commit') or 'unknown'}{changed}, machine {letter}, {disk}{rounds} rounds, "
        f"{grouped(report['seconds'])} s in all. {versions}."
    )


def _table(groups: list[Group], letter: str) -> Iterator[str]:
    yield "| workload | contestant | durability | figure | median | min .. max | ours : it | machine |"
    yield "| --- | --- | --- | --- | ---: | ---: | ---: | :-: |"
    for group in groups:
        for entry in group.entries:
            yield _row(group, entry, letter)


def _row(group: Group, entry: Entry, letter: str) -> str:
    low, high = min(entry.spread.rounds), max(entry.spread.rounds)
    subject = entry.subject if entry.version is None else f"{entry.subject} {entry.version}"
    if "," in entry.subject and entry.version is not None:
        name, _, rest = entry.subject.partition(",")
        subject = f"{name} {entry.version},{rest}"
    cells = (
        group.workload,
        subject,
        entry.durability,
        group.figure,
        figure_text(entry.spread.median),
        f"{figure_text(low)} .. {figure_text(high)}",
        _ratio(group, entry),
        letter,
    )
    return f"| {' | '.join(cells)} |"


def _ratio(group: Group, entry: Entry) -> str:
    ratio = group.ratio(entry)
    if ratio.median is None:
        return ""
    return f"{ratio.median:.2f} ({min(ratio.rounds):.2f} .. {max(ratio.rounds):.2f})"


def _growth(report: Data, pictures: str) -> Iterator[str]:
    yield "| along | cost | exponent | last step | allowed | verdict |"
    yield "| --- | --- | ---: | ---: | ---: | --- |"
    for axis in report["axes"]:
        for cost, fit in axis["growth"].items():
            slopes = [fit["exponent"], fit["tail_exponent"]]
            shown = " | ".join("" if it is None else f"{it:.2f}" for it in slopes)
            verdict = f"| {fit['allowed']:g} | {fit['verdict']} |"
            yield f"| {axis['title']} | {NAMES[cost]} | {shown} {verdict}"
    yield ""
    for axis in report["axes"]:
        yield f"**{axis['title'].capitalize()}.** {axis['why']}{_run_of(axis, report)}"
        yield ""
        yield f"![Growth with {axis['title']}]({pictures}/growth-{axis['axis']}.svg)"
        yield ""


def _run_of(axis: Data, report: Data) -> str:
    """Of which run an axis is, if not of the one that stands above."""
    run = axis.get("run")
    if not run or run == report.get("run"):
        return ""
    changed = ", with changes" if run["changed"] else ""
    return f" (`{run['command']}`, {run['date']}, commit {run['commit'] or 'unknown'}{changed}.)"


def _growth_plots(report: Data) -> dict[str, str]:
    return {f"growth-{axis['axis']}.svg": _growth_plot(axis) for axis in report["axes"]}


def _growth_plot(axis: Data) -> str:
    def line(figure: str) -> plots.Line:
        points = [(point["at"], point[figure]) for point in axis["points"]]
        return plots.Line(
            figure, tuple((at, it["median"], it["min"], it["max"]) for at, it in points)
        )

    def panel(title: str, figure: str) -> plots.Panel:
        fit = axis["growth"].get(figure)
        slope = None if fit is None else fit["allowed"]
        return plots.Panel(title, axis["title"], (line(figure),), slope)

    return plots.panels(
        f"Growth with {axis['title']}",
        (
            panel("commits/s", "commits_per_s"),
            panel("p99 of a commit, µs", "p99_us"),
            panel("server µs per commit", "server_us_per_commit"),
            panel("server µs, with a reader", "server_us_per_read"),
        ),
    )


def _left_out(results: Data) -> Iterator[str]:
    yield "### Not measured"
    yield ""
    if not results["failed"] and not results["left_out"]:
        yield "All contestants took part."
    for benchmark, reason in results["failed"].items():
        yield f"- {benchmark} could not be done: {reason.splitlines()[0]}"
    for benchmark, missing in results["left_out"].items():
        where = "" if benchmark == "all" else f", in {benchmark}"
        for subject, reason in missing.items():
            yield f"- {subject}{where}: {reason}."
    yield ""


def write_plots(folder: Path, drawn: Mapping[str, str]) -> None:
    """The pictures, and no older ones beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, picture in drawn.items():
        (folder / name).write_text(picture, "utf-8")
