"""Pipelines: streaming queries that are declared in a Python file, and run by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest
from ..model import check_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Options = Mapping[str, "str | int | float | bool"]
"""Options of a source or a sink, and `format`, if it is another than tstreams."""

Build = Callable[[Any], "DataFrame | DataStreamWriter"]
"""Makes the query: of the rows of its source if it has one, else of the session."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where pipelines run: what they do not say themselves."""

    connection: Mapping[str, str] = field(default_factory=dict)
    """Options for each source and sink of the format tstreams that names no `url`."""
    checkpoints: str = "checkpoints"
    """The folder with the checkpoint locations of pipelines that name none."""
    once: bool = False
    """Process what is there now, and end."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A streaming query with a name. `pipeline` makes one of a function.

    `build` gets the rows of `source`, or the session if there is no source. It returns rows, which go to
    `sink`; or, if there is no sink, what `rows.writeStream` begins, but not started. Name, checkpoint
    location and trigger are set by whoever runs it.

    `source` and `sink` are options of `format("tstreams")`, or of the format that the option `format` names.
    `trigger` is the time between micro-batches, such as "10 seconds"; without it each follows at once.
    `checkpoint` is the query's checkpoint location: it is what makes it the same query after a restart.
    """

    name: str
    build: Build
    source: Options | None = None
    sink: Options | None = None
    checkpoint: str | Path | None = None
    trigger: str | None = None
    output_mode: str = "append"

    def __post_init__(self) -> None:
        check_name(self.name)
        if not callable(self.build):
            raise BadRequest(f"pipeline {self.name!r}: build is a function, not {self.build!r}")

    def checkpoint_in(self, place: Place) -> str:
        """Its checkpoint location."""
        if self.checkpoint is not None:
            return str(self.checkpoint)
        return f"{place.checkpoints.rstrip('/')}/{self.name}"

    def prepare(self, spark: SparkSession, place: Place) -> DataStreamWriter:
        """The query, ready to be started."""
        writer = self._writer(spark, place).queryName(self.name)
        writer = writer.option("checkpointLocation", self.checkpoint_in(place))
        if place.once:
            return writer.trigger(availableNow=True)
        return writer if self.trigger is None else writer.trigger(processingTime=self.trigger)

    def _writer(self, spark: SparkSession, place: Place) -> DataStreamWriter:
        made: Any = self.build(self._input(spark, place))
        if hasattr(made, "writeStream"):
            if self.sink is None:
                raise BadRequest(
                    f"pipeline {self.name!r} gives rows, and has no sink: declare sink=..., or return "
                    "rows.writeStream with its format and options"
                )
            name, options = _complete(self.sink, place)
            rows: DataFrame = made
            writer = rows.writeStream.format(name).options(**options)
            return writer.outputMode(self.output_mode)
        if not hasattr(made, "foreachBatch"):
            raise BadRequest(
                f"pipeline {self.name!r} gives {type(made).__name__}: it has to return rows, or "
                "rows.writeStream that is not started"
            )
        if self.sink is not None:
            raise BadRequest(
                f"pipeline {self.name!r} has a sink, and returns rows.writeStream: it is one or the other"
            )
        unstarted: DataStreamWriter = made
        return unstarted

    def _input(self, spark: SparkSession, place: Place) -> Any:
        if self.source is None:
            return spark
        name, options = _complete(self.source, place)
        return spark.readStream.format(name).options(**options).load()


def pipeline(
    name: str | None = None,
    *,
    source: Options | None = None,
    sink: Options | None = None,
    checkpoint: str | Path | None = None,
    trigger: str | None = None,
    output_mode: str = "append",
) -> Callable[[Build], Pipeline]:
    """Declare the function below as a pipeline; it has the function's name unless another is given.

    The rest is as of `Pipeline`. `tstreams pipeline run FILE` runs the pipelines of a file.
    """

    def declare(build: Build) -> Pipeline:
        if not callable(build):
            raise BadRequest(f"@pipeline(...) stands above a function, not above {build!r}")
        called = getattr(build, "__name__", "") if name is None else name
        return Pipeline(called, build, source, sink, checkpoint, trigger, output_mode)

    return declare


def _complete(given: Options, place: Place) -> tuple[str, dict[str, str]]:
    """The format, and its options with those of the place. One that names its server takes nothing else."""
    options = {name: _text(value) for name, value in given.items()}
    name = options.pop("format", "tstreams")
    if name == "tstreams" and not any(it.lower() == "url" for it in options):
        options = {**place.connection, **options}
    return name, options


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
