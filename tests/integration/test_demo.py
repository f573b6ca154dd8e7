"""`tstreams demo`, small: with a kill it is right, and after Ctrl-C nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.integration.cli import CLEAN, TSTREAMS

pytestmark = pytest.mark.xdist_group("demo")


def command(*words: str) -> list[str]:
    return [*TSTREAMS, "demo", *words]


def environment(temporary: Path) -> dict[str, str]:
    """Whatever it leaves behind would be in this folder."""
    temporary.mkdir()
    return {**CLEAN, "TMPDIR": str(temporary)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_small_demo_with_a_kill(tmp_path: Path) -> None:
    temporary, report = tmp_path / "tmp", tmp_path / "report.html"
    words = ["--payments", "20000", "--kills", "1", "--rate", "20000", "--report", str(report)]
    done = subprocess.run(
        command(*words, "--json"),
        env=environment(temporary),
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    wrong = ("missing", "duplicated", "strange", "phantoms", "late_rows")
    assert {name: found[name] for name in wrong} == dict.fromkeys(wrong, 0)
    assert found["ok"] is True
    assert found["kills"] == len(found["killed_in_batches"]) == 1
    assert found["payments"] == found["acknowledged"] == 20_000
    assert (found["transactions"], found["expired"]) == (200, 4)
    assert found["uncounted"] == 100 * (found["cancelled"] + found["expired"]) > 400
    assert found["alerts"] == sum(found["patterns"].values()) > 20
    assert found["totals"] > 20
    assert found["report"] == str(report)
    assert report.read_text().count(">kill 1<") == 3
    assert "SIGKILL in the middle of micro-batch" in done.stderr
    assert os.listdir(temporary) == []


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    with subprocess.Popen(
        command("--payments", "20000"),
        cwd=tmp_path,
        env=environment(temporary),
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "the Spark driver starts" in line:
                break
        children = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        rest = demo.stderr.read()
        assert demo.wait(60) == 130, rest
    assert len(children) >= 4  # a server, two producers, a driver
    assert psutil.wait_procs(children, 30)[1] == []
    assert os.listdir(temporary) == []
    assert os.listdir(tmp_path) == ["tmp"]
