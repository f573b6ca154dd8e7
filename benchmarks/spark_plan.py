"""What `spark` measures: who takes part, on which ways, and which ratios come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

MICROBATCH_ROWS = 1000

WAYS = ("source", "sink", "pipeline")
"""Source to nowhere; memory to the sink; source to sink."""
KINDS = ("binary", "typed")
SUBJECTS = ("tstreams", "ceiling", "parquet", "kafka")

Key: TypeAlias = tuple[str, str, str]
"""Subject, way, kind: what one figure is of."""

RATIOS: dict[str, tuple[Key, Key, float | None]] = {
    "source_vs_ceiling": (("tstreams", "source", "binary"), ("ceiling", "source", "binary"), 0.6),
    "source_typed_vs_ceiling": (
        ("tstreams", "source", "typed"),
        ("ceiling", "source", "typed"),
        0.6,
    ),
    "pipeline_vs_ceiling": (
        ("tstreams", "pipeline", "binary"),
        ("ceiling", "pipeline", "binary"),
        0.4,
    ),
    "pipeline_typed_vs_ceiling": (
        ("tstreams", "pipeline", "typed"),
        ("ceiling", "pipeline", "typed"),
        None,
    ),
    "sink_vs_ceiling": (("tstreams", "sink", "binary"), ("ceiling", "sink", "binary"), None),
    "sink_typed_vs_ceiling": (("tstreams", "sink", "typed"), ("ceiling", "sink", "typed"), None),
    **{
        f"{way}_vs_{peer}": (("tstreams", way, "binary"), (peer, way, "binary"), None)
        for peer in ("parquet", "kafka")
        for way in WAYS
    },
}
"""Name: (ours, theirs, the least that is wanted or None). More is better."""

FLOOR_RATIO = "microbatch_vs_floor"
FLOOR_TARGET = 1.3
"""The most that is wanted: less is better."""

WAYS_DONE = {
    "tstreams": "format tstreams, read and written by all tasks straight from and to the server",
    "ceiling": "a Python data source that gives Arrow record batches made beforehand in the worker, and "
    "a Python sink that counts rows: what any Python source and sink has to go through",
    "parquet": "Spark's own Parquet files, snappy, as Spark writes them: no sync",
    "kafka": "Spark's own connector, exactly once at the source and at least once at the sink",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    rows: int
    """In each timed phase."""
    batches: int
    """Micro-batches in each timed query."""
    rounds: int
    cores: int
    partitions: int = 4
    transaction_rows: int = 1000
    """Of the transactions that sources read."""


@dataclass(slots=True)
class Measured:
    """What was found, round by round."""

    seconds: dict[Key, list[float]]
    microbatch_ms: dict[str, list[float]]
    """By subject: the median of a round's micro-batches."""
    server_cpu_s: dict[Key, list[float]]
