"""Putting a consumer elsewhere, and saying beforehand what that means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from ...client.asynchronous.inspection import Inspection
from ...errors import BadRequest, InvalidState
from ...protocol import ReaderInfo, StreamInfo, SurveyWant
from .. import resources as r
from ..amounts import Budget
from ..calls import Call
from ..front import Front, id_at
from ..limits import COUNT_STRIDES_DETAIL, DETAIL_PARTITIONS_MAX
from ..whole import WholeStream

Find = Callable[[Inspection, str, str], Awaitable[tuple[WholeStream, ReaderInfo]]]


class Resetting:
    """Works out the new positions, what they mean, and applies them."""

    def __init__(self, front: Front, find: Find) -> None:
        self._front = front
        self._find = find

    async def reset(self, inspect: Inspection, call: Call) -> r.ResetResult:
        """Do it, or with `dry_run` only say what would happen."""
        from .consumers import tag_of

        body: r.Reset = call.body
        whole, reader = await self._find(inspect, call.path["stream"], call.path["consumer"])
        info = whole.info
        call.check_match(tag_of(reader))
        partitions = self._partitions(info, body)
        targets = await self._targets(whole, reader, partitions, body)
        live = reader.agent != 0
        rows = await self._rows(whole, reader, targets)
        if live and not body.force and not body.dry_run:
            raise InvalidState(
                f"consumer {reader.name!r} is live in session {reader.session}: stop it, or reset with "
                "force, which fences it"
            )
        if not body.dry_run:
            await inspect.reset_reader(
                info.name, reader.name, list(targets.items()), force=body.force
            )
        return r.ResetResult(
            stream=info.name,
            consumer=reader.name,
            applied=not body.dry_run,
            live=live,
            summary=_summary(reader.name, rows, live, body.dry_run),
            partitions=rows,
        )

    def _partitions(self, info: StreamInfo, body: r.Reset) -> list[int]:
        if body.partitions is None:
            return list(range(info.partitions))
        if not body.partitions:
            raise BadRequest("partitions: name at least one, or leave it out for all")
        wrong = [it for it in body.partitions if it >= info.partitions]
        if wrong:
            raise BadRequest(
                f"partitions: {wrong[0]} is none of the {info.partitions} of stream {info.name!r}"
            )
        return sorted(set(body.partitions))

    async def _targets(
        self, whole: WholeStream, reader: ReaderInfo, partitions: list[int], body: r.Reset
    ) -> dict[int, int]:
        """The transaction after which it goes on, in each partition."""
        now = await whole.standing(reader.name)
        newest = {it: now.newest(it) for it in partitions}
        if body.to == "newest":
            return newest
        if body.to == "oldest":
            ends = await whole.survey(SurveyWant(it, 0, 1) for it in partitions)
            oldest = {it.partition: it.last_id for it in ends if it.last_id}
            return {it: oldest[it] - 1 if it in oldest else newest[it] for it in partitions}
        assert isinstance(body.to, r.Point)
        first = id_at(body.to, "to")
        # To an id: that transaction was read. To a time: what was opened then is still to be read.
        is_id = isinstance(body.to.id, str)
        target = first if is_id else max(first - 1, 0)
        if is_id and target >= max(now.next_ids):
            raise BadRequest(f"to: no transaction has the id {target} yet")
        # Where none was given out that is so late, there is nothing between it and what comes next.
        return {it: max(target, 1) if target < now.next_id(it) else newest[it] for it in partitions}

    async def _rows(
        self, whole: WholeStream, reader: ReaderInfo, targets: dict[int, int]
    ) -> list[r.ResetPartition]:
        """What changes, in the first partitions; the others change alike."""
        saved = dict(reader.positions)
        budget = Budget(COUNT_STRIDES_DETAIL)
        rows = []
        for partition, target in list(targets.items())[:DETAIL_PARTITIONS_MAX]:
            before = saved.get(partition, 0)
            amount, exact = await self._front.milestones.between(
                whole, partition, (before, target), budget
            )
            rows.append(
                r.ResetPartition(
                    partition=partition,
                    before=str(before) if partition in saved else None,
                    after=str(target),
                    direction=_direction(before, target, amount.transactions),
                    transactions=amount.transactions,
                    items=amount.items,
                    exact=exact,
                )
            )
        return rows


def _direction(before: int, target: int, transactions: int) -> Literal["none", "back", "forward"]:
    if not transactions:
        return "none"
    return "back" if target < before else "forward"


def _summary(name: str, rows: list[r.ResetPartition], live: bool, dry_run: bool) -> str:
    again = sum(it.transactions for it in rows if it.direction == "back")
    never = sum(it.transactions for it in rows if it.direction == "forward")
    about = "" if all(it.exact for it in rows) else "at least "
    parts = []
    if again:
        parts.append(f"reads {about}{again} transactions again")
    if never:
        parts.append(f"never reads {about}{never} transactions")
    text = " and ".join(parts) or "goes on where it is"
    fenced = ""
    if live:
        fenced = (
            "; it is live, and only force resets it: then it is fenced"
            if dry_run
            else "; whoever held its name was fenced"
        )
    return f"consumer {name!r} {text}{fenced}"
