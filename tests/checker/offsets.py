"""Checks of what readers saved, and where they resumed."""

from __future__ import annotations

from collections import defaultdict
from math import inf

from tests.checker.entities import ID_END
from tests.checker.findings import Findings
from tests.checker.history import Commit, Read, Stand
from tests.checker.knowledge import Knowledge


def check(known: Knowledge, findings: Findings) -> None:
    """All of them."""
    for place, stands in known.resumes.items():
        _resumed_where_they_were(known, findings, place, stands)
    _saved_what_was_read(known, findings)


def _resumed_where_they_were(
    known: Knowledge, findings: Findings, place: tuple[str, str, int], stands: list[Stand]
) -> None:
    """A reader goes on where the last checkpoint left it, or one of which nobody was told."""
    saves = known.saves[place]
    last = -1
    for stand in stands:
        at = last + 1
        may_be: set[int] = set()
        while at < len(saves) and saves[at][0].start < stand.end:
            commit, last_id = saves[at]
            if known.effective[id(commit)] < stand.start:
                last = at
                may_be.clear()
            else:
                may_be.add(last_id)
            at += 1
        saved = saves[last][1] if last >= 0 else 0
        if (
            stand.after not in (saved, *may_be)
            and known.dead_below(stand.stream, stand.end) < ID_END
        ):
            saved_by = saves[last][0] if last >= 0 else None
            _tell(known, findings, place, stand, saved, saved_by)


def _tell(
    known: Knowledge,
    findings: Findings,
    place: tuple[str, str, int],
    stand: Stand,
    saved: int,
    commit: Commit | None,
) -> None:
    text = f"{place[0]} resumed in {place[1]}/{place[2]} after {stand.after}, saved was {saved}"
    if stand.after > saved:
        findings.add("offset-ahead", text)
    elif commit is not None and _was_seen(known, commit):
        findings.add("group-torn", text + ", and what was checkpointed with it was read")
    else:
        findings.add("offset-went-back", text)


def _was_seen(known: Knowledge, commit: Commit) -> bool:
    return any(known.transaction(key).read_at < inf for key in commit.transactions)


def _saved_what_was_read(known: Knowledge, findings: Findings) -> None:
    """Nobody saves more than he was handed."""
    seen: dict[tuple[str, str, int], list[Read | Stand]] = defaultdict(list)
    for (agent, _, stream, partition), turns in known.turns.items():
        seen[agent, stream, partition] += [it for it in turns if isinstance(it, Read | Stand)]
    for place, saves in known.saves.items():
        steps = sorted(seen[place], key=lambda it: it.start)
        at, greatest = 0, 0
        for commit, last_id in saves:
            while at < len(steps) and steps[at].start <= commit.end:
                step = steps[at]
                unknown = isinstance(step, Stand) and step.after < 0
                after = step.after if isinstance(step, Stand) else step.id
                greatest = max(greatest, ID_END if unknown else after)
                at += 1
            if last_id > greatest:
                findings.add(
                    "offset-ahead",
                    f"{place[0]} saved {last_id} in {place[1]}/{place[2]}, and had come to {greatest}",
                )
