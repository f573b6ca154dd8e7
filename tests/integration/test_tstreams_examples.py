"""The examples in examples/tstreams do what they say: their results, and as scripts."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tstreams import TransactionState

EXAMPLES = Path(__file__).parents[2] / "examples" / "tstreams"
NAMES = tuple(path.stem for path in sorted(EXAMPLES.glob("*.py")))

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports an example under its own name; other folders of examples have some of these too."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


def run_script(name: str) -> str:
    """What it printed; it must end well, and without warnings."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_hello(load: Load) -> None:
    first, second = load("hello").run()
    assert first == [[b"hello", b"world"], [b"a whole transaction in one call"]]
    assert second == []


def test_order(load: Load) -> None:
    story = load("order").run()
    assert [found for _, found in story.steps] == [[], [], [], [], ["January", "March", "April"]]
    assert story.states == {
        "January": TransactionState.CHECKPOINTED,
        "February": TransactionState.CANCELLED,
        "March": TransactionState.CHECKPOINTED,
    }


def test_times(load: Load) -> None:
    answers = load("times").run()
    assert answers.since == [b"23", b"24", b"25"]
    assert answers.between == [b"21", b"22"]
    assert answers.last == b"25"
    assert answers.latency_s > 0


def test_pipeline(load: Load) -> None:
    pipeline = load("pipeline")
    result = pipeline.run()
    assert result.workers == 4
    assert result.outputs == [number**2 for number in range(pipeline.INPUTS)]


def test_database(load: Load) -> None:
    result = load("database").run()
    assert result.crashes == 2
    assert result.totals == {"alice": 45, "bob": 10}


def test_rows(load: Load) -> None:
    assert load("rows").run() == [("Oslo", 4.012), ("Rome", 20.0)]


@pytest.mark.parametrize("name", ["hello", "order", "times", "database", "rows"])
def test_as_a_script(name: str) -> None:
    assert run_script(name)


def test_every_example_is_in_the_list() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in NAMES if f"({name}.py)" not in text] == []


@pytest.mark.slow
def test_every_claim_of_the_show_holds() -> None:
    printed = run_script("show")
    assert "NOT SO" not in printed
    assert printed.count("    ok  ") == 17
    assert "17 of 17 claims held" in printed
    assert max(map(len, printed.splitlines())) <= 80
