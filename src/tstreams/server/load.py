"""How busy a node is, and each shard that it leads: what placement goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .metrics import Metrics

SMOOTHED_OVER_S = 5.0
"""A load that lasts so long shows with two thirds of it: what is over sooner is no reason to move anything."""

NOTICEABLE = 0.05
"""Of a processor. What differs by less is not told: nobody would do anything else because of it."""

_STEP = 0.01
"""Loads are told in steps of this, and no shard that is led has less: idle shards are all alike."""

_BATCH_BYTES = 64 * 1024
"""So many bytes, written or read, are as much work as a record."""


def work_of(metrics: Metrics) -> int:
    """What a shard has done, in about equal pieces: only the difference between two looks says anything."""
    moved_bytes = metrics.append_bytes + metrics.bytes_read
    pieces = metrics.groups + metrics.records + metrics.answers_read
    return pieces + moved_bytes // _BATCH_BYTES


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a node is, of 1.0, which is a whole processor; and how much of that is for each shard that it leads."""

    node: float
    shards: dict[int, float]


class LoadMeter:
    """Divides the time for which a node was busy among its shards, by what they have done. Looks at no clock by itself."""

    def __init__(self) -> None:
        self._seen: tuple[float, float, Mapping[int, int]] | None = None
        self._busy = 0.0
        self._shards: dict[int, float] = {}
        self._told = Load(0.0, {})

    def look(self, now_s: float, busy_s: float, work: Mapping[int, int]) -> Load | None:
        """What to tell the others; None: nothing that is noticeable has changed. `busy_s` is processor time, and `work`
        what each shard that is led has done, both since any time."""
        seen, self._seen = self._seen, (now_s, busy_s, dict(work))
        if seen is None or now_s <= seen[0]:
            return None
        passed_s = now_s - seen[0]
        busy = min(max(0.0, (busy_s - seen[1]) / passed_s), 1.0)
        done = {shard: max(0, it - seen[2].get(shard, it)) for shard, it in work.items()}
        total = sum(done.values())
        weight = passed_s / (passed_s + SMOOTHED_OVER_S)
        self._busy += (busy - self._busy) * weight
        self._shards = {
            shard: before + (busy * it / total - before if total else -before) * weight
            for shard, it in done.items()
            for before in [self._shards.get(shard, 0.0)]
        }
        load = Load(_rounded(self._busy), {n: _rounded(it) for n, it in self._shards.items()})
        return load if self._is_noticeable(load) else None

    def told(self, load: Load) -> None:
        """The others know this."""
        self._told = load

    def _is_noticeable(self, load: Load) -> bool:
        now, told = load.shards, self._told.shards
        if abs(load.node - self._told.node) >= NOTICEABLE:
            return True
        # A shard of which nothing was told counts as the mean of the others; one that has moved away is told by whoever has it.
        return any(abs(now.get(n, 0.0) - told.get(n, 0.0)) >= NOTICEABLE for n in now | told)


def _rounded(load: float) -> float:
    return max(_STEP, round(load / _STEP) * _STEP)
