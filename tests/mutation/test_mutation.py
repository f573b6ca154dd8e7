"""Mutants are what they say, are planted, and are noticed; and what is explained is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.explained import Explained, key_of
from tests.mutation.mutants import Mutant, compiled, mutants_of
from tests.mutation.planting import FOLDER, path_of

ROOT = Path(__file__).parents[2]
SOURCE = '''
"""A module."""
from __future__ import annotations

T = TypeVar("T", int, str)


class Counter:
    """Counts."""

    step: int = 1

    def count(self, numbers: list[int], least: int = 0) -> int:
        """How many."""
        if least < 5 and numbers:
            raise ValueError(f"not {least + 1}", 7)
        self.last = max(least, len(numbers))
        self.log(least)
        return sum(it for it in numbers if it != 3)
'''
CHANGES = {
    ("Counter", "1 becomes 2"),
    ("Counter", "1 becomes 0"),
    ("", "0 becomes 1"),
    ("", "0 becomes -1"),
    ("Counter.count", "< becomes <="),
    ("Counter.count", "< becomes >="),
    ("Counter.count", "5 becomes 6"),
    ("Counter.count", "5 becomes 4"),
    ("Counter.count", "and becomes or"),
    ("Counter.count", "negated"),
    ("Counter.count", "left out"),
    ("Counter.count", "max becomes min"),
    ("Counter.count", "an argument becomes None"),
    ("Counter.count", "returns None"),
    ("Counter.count", "!= becomes =="),
    ("Counter.count", "3 becomes 4"),
    ("Counter.count", "3 becomes 2"),
    ("Counter.count", "always true"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "counting.py"
    path.write_text(SOURCE)
    return path


def test_all_that_can_be_changed_is_and_nothing_else(path: Path) -> None:
    mutants = mutants_of(path)
    assert {(it.function, it.what) for it in mutants} == CHANGES
    lines = SOURCE.split("\n")
    assert not [
        it for it in mutants if "ValueError" in lines[it.line - 1] and it.what != "left out"
    ]
    assert len({compiled(path, it.number) for it in mutants}) == len(mutants)
    with pytest.raises(IndexError, match=r"counting.py has no mutant"):
        compiled(path, len(mutants))


def test_a_mutant_does_what_it_says(path: Path) -> None:
    found = {it.what: it for it in mutants_of(path)}
    names: dict[str, object] = {"TypeVar": lambda *_: None}
    exec(compiled(path, found["!= becomes =="].number), names)
    counter = names["Counter"]
    assert isinstance(counter, type)
    it = counter()
    it.log = lambda _: None
    assert it.count([1, 3, 3], 9) == 6


def one(module: str, function: str, what: str, before: str) -> Mutant:
    found = [
        it
        for it in mutants_of(path_of(module))
        if (it.function, it.what) == (function, what) and it.before.startswith(before)
    ]
    assert len(found) == 1, found
    return found[0]


def test_what_is_noticed_and_what_is_not(tmp_path: Path) -> None:
    """One that a test notices, in a function and outside; one that makes no difference; one that no test runs."""
    noticed = one("state", "State.take_expired", "left out", "heapq.heappush")
    harmless = one("state", "State.heads_of", "< becomes <=", "if")
    elsewhere = one("state", "State.extend_step", "== becomes !=", "if")
    outside = one("facts", "Session", "0 becomes 1", "last")
    results = tmp_path / "results.jsonl"
    chosen = ["--number", str(noticed.number), "--number", str(harmless.number)]
    chosen += ["--number", str(elsewhere.number), "--module", "state"]
    run = tried(results, *chosen)
    assert "| `state` | 3 | 1 | 0 | 0 | 2 | 1 | 0 |" in run.stdout, run.stdout + run.stderr
    assert run.stdout.count("extend_step: == becomes !=") == 2, "when it is found, and in the end"
    assert run.stdout.endswith("1 survivors are not explained\n")
    assert run.returncode == 1
    known = results.read_text()
    assert "tests/unit/test_core_memory.py::test_" in known
    assert tried(results, *chosen).returncode == 1, "it is known, and not tried again"
    assert results.read_text() == known
    run = tried(results, "--number", str(outside.number), "--module", "facts")
    assert "| `facts` | 1 | 1 | 0 | 0 | 0 | 0 | 0 |" in run.stdout, run.stdout + run.stderr
    assert run.returncode == 0


def tried(results: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutation", "--results", str(results), *arguments]
    command += ["--tests", "tests/unit/test_core_memory.py"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_what_is_explained_is_there() -> None:
    """Once the code changes, its explanations must."""
    keys = {key_of(it) for path in sorted(FOLDER.glob("*.py")) for it in mutants_of(path)}
    assert [it for it in Explained.read().reasons if it not in keys] == []


def test_the_page_has_all_of_it() -> None:
    page = (ROOT / "docs/proof/mutation.md").read_text()
    reasons = Explained.read().reasons.items()
    assert [key for key, why in reasons if f"`{key[0]}`" not in page or why not in page] == []


def test_an_explanation_has_its_form(tmp_path: Path) -> None:
    path = tmp_path / "explained.txt"
    entry = "a.b: left out\n  - x()\n  + (left out)\n"
    path.write_text(f"About.\n\n{entry}    Because of\n    this.\n")
    assert Explained.read(path).reasons == {
        ("a.b: left out", "x()", "(left out)"): "Because of this."
    }
    for wrong in (entry, f"{entry}    Why.\n\n{entry}    Why.\n"):
        path.write_text(f"About.\n\n{wrong}")
        with pytest.raises(ValueError, match=r"not an explanation|explained twice"):
            Explained.read(path)
