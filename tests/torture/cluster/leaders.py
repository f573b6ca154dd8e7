"""Who led which shard in which epoch, as the nodes wrote down. No epoch has two leaders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.torture.cluster.node import TorturedNode
from tests.torture.verdict import Verdict

_LEADS = re.compile(r"^(\S+) \S+ \S+ leads shard (\d+) epoch=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Reign:
    """A node began to lead a shard."""

    shard: int
    epoch: int
    node: str
    begun: str
    """The time of day."""


def read_reigns(nodes: Iterable[TorturedNode]) -> list[Reign]:
    """All of them, by shard and epoch."""
    return sorted(
        Reign(int(shard), int(epoch), node.name, begun)
        for node in nodes
        for begun, shard, epoch in _LEADS.findall(node.server.log_path.read_text(errors="replace"))
    )


def reigns_of(nodes: Iterable[TorturedNode]) -> dict[str, list[list[object]]]:
    """For the report: of each shard (epoch, node, when it began)."""
    found: dict[str, list[list[object]]] = {}
    for it in read_reigns(nodes):
        found.setdefault(str(it.shard), []).append([it.epoch, it.node, it.begun])
    return found


def judge_reigns(reigns: Iterable[Reign], verdict: Verdict) -> None:
    """An epoch was given to one node, once."""
    led: dict[tuple[int, int], Reign] = {}
    for it in reigns:
        other = led.setdefault((it.shard, it.epoch), it)
        if other is not it:
            verdict.add(
                f"two-leaders: shard {it.shard} was led twice in epoch {it.epoch}: {other} {it}"
            )
