"""Declaring and finding pipelines, and what Spark's reports come to: all that needs no Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tstreams.errors import BadRequest, NotFound
from tstreams.spark import Pipeline, Place, pipeline
from tstreams.spark.failures import reason_of
from tstreams.spark.loading import check_targets, load_pipelines
from tstreams.spark.progress import Progress, lag_of

Write = Callable[[str], Path]

DECLARED = """
from tstreams.spark import Pipeline, pipeline

@pipeline(source={"stream": "a"}, sink={"stream": "b"})
def first(rows):
    return rows

second = Pipeline("second", lambda spark: None)
again = first
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of pipelines."""
    numbers = itertools.count()

    def write(text: str) -> Path:
        path = tmp_path / f"pipelines_{next(numbers)}.py"
        path.write_text(text)
        return path

    return write


def names(*targets: object) -> list[str]:
    return [it.name for it in load_pipelines(map(str, targets))]


def test_the_pipelines_of_a_file_come_in_their_order(write: Write) -> None:
    path = write(DECLARED)
    assert names(path) == ["first", "second"]
    assert names(f"{path}:second") == ["second"]
    assert names(f"{path}:second", path) == ["second", "first"]


def test_the_pipelines_of_a_module(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(DECLARED)
    monkeypatch.chdir(path.parent)
    path.rename("a_module_of_pipelines.py")
    assert names("a_module_of_pipelines:first") == ["first"]


def test_what_is_not_there(write: Write, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no file .*missing\.py"):
        check_targets([str(tmp_path / "missing.py")])
    with pytest.raises(NotFound, match=r"no file and no module 'no_such\.module'"):
        names("no_such.module")
    with pytest.raises(NotFound, match=r"declares no pipeline: put @tstreams\.spark\.pipeline"):
        names(write("x = 1"))
    with pytest.raises(NotFound, match="has no pipeline 'third': it has first, second"):
        names(f"{write(DECLARED)}:third")


def test_two_of_one_name_are_refused(write: Write) -> None:
    with pytest.raises(BadRequest, match="two pipelines are called 'first'"):
        names(write(DECLARED), write(DECLARED))


def test_code_that_fails_is_told_with_its_line(write: Write) -> None:
    with pytest.raises(BadRequest, match=r"pipelines_0\.py:2: ZeroDivisionError: division by zero"):
        names(write("x = 1\ny = x / 0\n"))
    with pytest.raises(BadRequest, match=r"pipelines_1\.py:1: SyntaxError"):
        names(write("def f(:\n"))
    with pytest.raises(
        BadRequest, match=r"pipelines_2\.py:1: ModuleNotFoundError.*no_such_package"
    ):
        names(write("import no_such_package\n"))


def test_a_declaration_is_checked() -> None:
    with pytest.raises(BadRequest, match="build is a function"):
        Pipeline("x", "rows")  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        Pipeline("", lambda rows: rows)
    with pytest.raises(BadRequest, match="stands above a function"):
        pipeline("x")(17)  # type: ignore[arg-type]


def test_the_checkpoint_location() -> None:
    build: Any = lambda rows: rows  # noqa: E731
    place = Place(checkpoints="s3://bucket/checkpoints/")
    assert Pipeline("x", build).checkpoint_in(place) == "s3://bucket/checkpoints/x"
    assert Pipeline("x", build, checkpoint="here").checkpoint_in(place) == "here"


def report(**changes: Any) -> dict[str, Any]:
    offsets = {"s": {"0": 200_000_00000, "1": 100_000_00000}}
    source = {"startOffset": None, "endOffset": offsets, "latestOffset": offsets}
    told = {"batchId": 7, "numInputRows": 500, "batchDuration": 250, "sources": [source]}
    return {**told, "timestamp": "2026-01-01T00:00:00.000Z", **changes}


def test_a_report_in_a_few_numbers() -> None:
    found = Progress.of(report())
    assert found == Progress(7, 500, 2000.0, 0.25, 0.0, "2026-01-01T00:00:00.000Z")
    assert Progress.of(report(batchDuration=0)).rows_per_s == 0
    parts = [{"numInputRows": 30}, {"numInputRows": 12}]
    assert Progress.of(report(numInputRows=None, sources=parts)).rows == 42


def test_the_lag_is_that_of_the_partition_that_is_furthest_behind() -> None:
    end = {"s": {"0": 200_000_00000, "1": 100_000_00000}}
    latest = {"s": {"0": 200_500_00000, "1": 103_000_00007}}
    assert lag_of([{"endOffset": end, "latestOffset": latest}]) == 3.0
    as_text = '{"s": {"0": 20050000000}}'
    assert lag_of([{"endOffset": '{"s": {"0": 20000000000}}', "latestOffset": as_text}]) == 0.5


@pytest.mark.parametrize(
    ("end", "latest"),
    [(None, None), ("17", "18"), ("-", "-"), ({"s": 1}, {"s": 2}), ({}, {"s": {"0": 5}})],
)
def test_the_lag_of_other_sources_is_not_known(end: Any, latest: Any) -> None:
    assert lag_of([{"endOffset": end, "latestOffset": latest}]) is None


def test_the_reason_of_a_failure_is_what_python_raised() -> None:
    text = (
        "[STREAM_FAILED] Query terminated: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    process()\nValueError: no bad words\n\n\tat org.apache'
    )
    assert reason_of(RuntimeError(text)) == "ValueError: no bad words"
    assert (
        reason_of(RuntimeError("org.apache.spark.SparkException: it broke\n\tat x")) == "it broke"
    )
    assert reason_of(RuntimeError("[A_B] plain")) == "[A_B] plain"
    assert reason_of(RuntimeError()) == "RuntimeError"
