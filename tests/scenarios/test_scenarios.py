"""Every scenario comes out as it is written. TSTREAMS_REWRITE=1 writes it as it comes out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.script import read_script, rewrite
from tests.scenarios.stage import Stage

FOLDER = Path(__file__).parent
SCENARIOS = sorted(path for path in FOLDER.glob("*.txt") if path.name != "README.txt")


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 8
    for path in SCENARIOS:
        steps, lines = read_script(path)
        assert lines[0].strip(), path.name
        assert steps[0].line > 1, f"{path.name} begins with a paragraph on what it shows"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "data")
    try:
        if os.environ.get("TSTREAMS_REWRITE"):
            rewrite(path, stage.run)
            return
        for step in read_script(path)[0]:
            came = stage.run(step.command)
            assert came == step.expected, f"{path.name}, line {step.line}: {step.command}"
    finally:
        stage.close()
