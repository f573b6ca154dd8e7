"""Pipelines in one session: started one after the other, started again, stopped between micro-batches."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, udf

from tstreams import Client
from tstreams.errors import Unavailable
from tstreams.spark import Pipeline, Place
from tstreams.spark.progress import Progress
from tstreams.spark.runner import Runner
from tstreams.spark.running import Run, State

from .conftest import Pipe
from .test_source import fill

Make = Callable[..., str]

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


class Log:
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.pauses: list[float] = []
        self.on_progress: Callable[[Run], None] = lambda _: None

    def changed(self, run: Run) -> None:
        self.events.append((run.name, str(run.state)))
        if run.state is State.WAITING:
            self.pauses.append(run.pause_s)

    def progressed(self, run: Run, progress: Progress) -> None:
        self.events.append((run.name, f"batch {progress.batch}"))
        self.on_progress(run)

    def looked(self, runs: Sequence[Run]) -> None:
        pass

    def of(self, name: str) -> list[str]:
        return [what for who, what in self.events if who == name]


class Stage:
    """Runs pipelines of the test's own streams."""

    def __init__(self, pipe: Pipe, folder: Path) -> None:
        self.log = Log()
        self.pipe = pipe
        self._place = Place({"url": pipe.url}, str(folder / "checkpoints"))

    def runner(self, *pipelines: Pipeline, once: bool = True, **options: Any) -> Runner:
        place = Place(self._place.connection, self._place.checkpoints, once)
        options = {"backoff_s": 0.01, "start_limit_s": 240.0, "stop_timeout_s": 240.0, **options}
        return Runner(self.pipe.spark, pipelines, self.log, place=place, **options)


@pytest.fixture
def stage(pipe: Pipe, tmp_path: Path) -> Stage:
    return Stage(pipe, tmp_path)


def copying(name: str, source: str, sink: str, **options: Any) -> Pipeline:
    """A pipeline that writes what it reads."""
    return Pipeline(
        name, lambda rows: rows.select("item"), {"stream": source, **options}, {"stream": sink}
    )


def assert_nothing_is_open(ts: Client, stream: str) -> None:
    """What is written now can be read at once: no transaction before it holds it up."""
    partitions = range(ts.stream(stream).partitions)
    with ts.producer(stream) as producer:
        ids = [producer.instant([b"the end"], partition=it) for it in partitions]
    assert [[txn.id for txn in ts.scan(stream, it)][-1] for it in partitions] == ids


def test_a_chain_is_worked_off_in_order(stage: Stage, ts: Client, make: Make) -> None:
    source, between, sink = make(2), make(1), make(1)
    fill(ts, source, 10)
    first = copying("first", source, between, maxTransactionsPerTrigger=2)
    runner = stage.runner(first, copying("second", between, sink))
    assert runner.run()
    wanted = Counter(stage.pipe.items(source))
    assert Counter(stage.pipe.items(between)) == Counter(stage.pipe.items(sink)) == wanted
    events = stage.log.events
    assert events.index(("first", "done")) < events.index(("second", "starting"))
    assert len(stage.log.of("first")) > len(stage.log.of("second")) == 4
    assert {(run.state, run.rows, run.restarts) for run in runner.runs} == {
        (State.DONE, wanted.total(), 0)
    }


def test_queries_start_one_after_the_other(stage: Stage, ts: Client, make: Make) -> None:
    empty, source, sink = make(1), make(1), make(1)
    fill(ts, source, 5)
    runner = stage.runner(copying("idle", empty, sink), copying("busy", source, sink), once=False)
    stage.log.on_progress = lambda run: runner.stop() if run.name == "busy" else None
    assert runner.run()
    # The first micro-batch notes where the stream begins.
    assert stage.log.of("idle") == ["starting", "running", "batch 0", "stopping", "stopped"]
    assert stage.log.of("busy")[:3] == ["starting", "running", "batch 0"]
    events = stage.log.events
    assert events.index(("idle", "batch 0")) < events.index(("busy", "starting"))
    assert Counter(stage.pipe.items(sink)) == Counter(stage.pipe.items(source))


def test_a_failing_pipeline_is_started_again(stage: Stage, ts: Client, make: Make) -> None:
    source, sink = make(1), make(1)
    fill(ts, source, 10)
    starts: list[DataFrame] = []

    @udf(returnType="binary", useArrow=False)
    def fails(item: bytes) -> bytes:
        raise ValueError("on purpose")

    def build(rows: DataFrame) -> DataFrame:
        starts.append(rows)
        return rows.select("item" if len(starts) > 2 else fails(col("item")).alias("item"))

    shaky = Pipeline("shaky", build, {"stream": source}, {"stream": sink})
    runner = stage.runner(shaky, restarts=2)
    assert runner.run()
    run = runner.runs[0]
    assert (run.state, run.restarts, run.failures) == (State.DONE, 2, 2)
    assert run.error == "ValueError: on purpose"
    assert stage.log.pauses == [0.01, 0.02]
    assert Counter(stage.pipe.items(sink)) == Counter(stage.pipe.items(source))


def test_one_that_is_given_up_stops_the_others(stage: Stage, ts: Client, make: Make) -> None:
    source, sink = make(1), make(1)
    fill(ts, source, 10)

    def never(_: SparkSession) -> DataFrame:
        raise Unavailable("out of order")

    good, bad = copying("good", source, sink), Pipeline("bad", never)
    runner = stage.runner(good, bad, once=False, restarts=1)
    assert not runner.run()
    assert stage.log.of("bad") == ["waiting", "failed"]
    assert stage.log.of("good")[-2:] == ["stopping", "stopped"]
    assert runner.runs[1].error == "out of order"

    stage.log.events.clear()
    runner = stage.runner(bad, good, restarts=0, keep_going=True)
    assert not runner.run()
    assert (stage.log.of("bad"), stage.log.of("good")[-1]) == (["failed"], "done")


def test_what_does_not_pass_is_not_tried_again(stage: Stage, make: Make) -> None:
    stream = make(1)
    given: dict[str, Any] = {"source": {"stream": stream}}
    wrong = [
        (Pipeline("no-sink", lambda rows: rows, **given), "has no sink: declare sink="),
        (
            Pipeline("nothing", lambda rows: None, **given),  # type: ignore[arg-type, return-value]
            "gives NoneType",
        ),
        (
            Pipeline("both", lambda rows: rows.writeStream, sink={"stream": stream}, **given),
            "it is one or the other",
        ),
        (Pipeline("typo", lambda rows: rows.slect("item"), **given), "slect"),
    ]
    runner = stage.runner(*(it for it, _ in wrong), keep_going=True)
    assert not runner.run()
    for run, (_, reason) in zip(runner.runs, wrong, strict=True):
        assert (run.state, run.failures) == (State.FAILED, 1)
        assert reason in run.error


def test_a_stop_comes_between_two_micro_batches(stage: Stage, ts: Client, make: Make) -> None:
    source, sink = make(2), make(3)
    fill(ts, source, 200)
    busy = Pipeline(
        "busy",
        lambda rows: rows.selectExpr("item", "item as key"),
        {"stream": source, "maxTransactionsPerTrigger": 2},
        {"stream": sink},
    )
    wanted = Counter(stage.pipe.items(source))
    for times in range(1, 4):
        runner = stage.runner(busy, once=False)
        stage.log.on_progress = lambda run, runner=runner: runner.stop()  # type: ignore[misc]
        assert runner.run()
        assert (runner.runs[0].state, runner.runs[0].cut) == (State.STOPPED, False)
        assert_nothing_is_open(ts, sink)
        found = Counter(stage.pipe.items(sink))
        assert found.pop(b"the end") == 3 * times
        assert found < wanted
    stage.log.on_progress = lambda _: None
    assert stage.runner(copying("busy", source, sink)).run()
    found = Counter(stage.pipe.items(sink))
    del found[b"the end"]
    assert found == wanted


def test_a_stop_does_not_wait_for_ever(stage: Stage, ts: Client, make: Make) -> None:
    source, sink = make(1), make(1)
    fill(ts, source, 1)

    @udf(returnType="binary", useArrow=False)
    def sleepy(item: bytes) -> bytes:
        time.sleep(60)
        return item

    slow = Pipeline(
        "slow",
        lambda rows: rows.select(sleepy(col("item")).alias("item")),
        {"stream": source},
        {"stream": sink},
    )
    runner = stage.runner(slow, once=False, stop_timeout_s=0.1)
    stopping: list[bool] = []

    def looked(runs: Sequence[Run]) -> None:
        query = runs[0]._query
        if query is not None and query.status["message"] == "Processing new data":
            stopping.append(True)
            runner.stop()

    stage.log.looked = looked  # type: ignore[method-assign]
    assert runner.run()
    assert stopping
    assert (runner.runs[0].state, runner.runs[0].cut) == (State.STOPPED, True)
    assert stage.pipe.items(sink) == []


def test_output_mode_complete_replaces_the_stream(stage: Stage, ts: Client, make: Make) -> None:
    source, sink = make(1), make(2)

    def count(rows: DataFrame) -> DataFrame:
        counts = rows.groupBy("item").count()
        return counts.selectExpr("concat(cast(item as string), ' ', count) as item", "item as key")

    counting = Pipeline(
        "counting", count, {"stream": source}, {"stream": sink}, output_mode="complete"
    )
    with ts.producer(source) as producer:
        producer.instant([b"a", b"b", b"a"])
        assert stage.runner(counting).run()
        assert sorted(stage.pipe.items(sink)) == [b"a 2", b"b 1"]
        producer.instant([b"c", b"a"])
        assert stage.runner(counting).run()
    assert sorted(stage.pipe.items(sink)) == [b"a 3", b"b 1", b"c 1"]
