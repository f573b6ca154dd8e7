"""`python -m benchmarks profile` looks at a real server and its clients, and says where their time goes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.profile_recorder import why_not

from .doc_blocks import ROOT

pytestmark = pytest.mark.slow


def test_the_way_of_a_write(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    out, data = tmp_path / "out", tmp_path / "data"
    command = [sys.executable, "-m", "benchmarks", "profile", "--path", "write", "--seconds", "1"]
    command += ["--json", "--out", str(out), "--dir", str(data)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert json.loads((out / "profile.json").read_text())["profiles"] == result["profiles"]
    found = {profile["name"]: profile for profile in result["profiles"]}
    assert set(found) == {"write-server", "write-client"}
    server = found["write-server"]
    assert server["samples"]["working"] > 0
    assert sum(server["shares"].values()) == pytest.approx(100, abs=0.5)
    ours = [row["function"] for row in server["total"]]
    assert any("(tstreams/server/" in name for name in ours), ours
    picture = ET.parse(out / "write-server.svg").getroot()
    drawn = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert any("(tstreams/server/" in title for title in drawn), drawn
    for name in found:
        assert (out / f"{name}.svg").exists()
        assert (out / f"{name}.folded").read_text().strip()
        assert f"![Flame graph of {name}]({name}.svg)" in (out / "profile.md").read_text()
    assert list(data.iterdir()) == []
