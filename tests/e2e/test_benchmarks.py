"""Each benchmark runs, cleans up, and prints one JSON object with its ratios. No times are asserted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .doc_blocks import ROOT


@pytest.mark.slow
def test_reqrep() -> None:
    command = [sys.executable, "-m", "benchmarks", "reqrep", "--clients", "3", "--quick", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result["ratios"]) == {
        "tcp_vs_bare_tcp",
        "zmq_vs_bare_zmq",
        "tcp_vs_redis",
        "tcp_pipelined_vs_bare_zmq_pipelined",
    }
    for name, ratio in result["ratios"].items():
        assert ratio is not None or "redis" in name, f"{name} was not measured"
