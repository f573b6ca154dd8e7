"""The simulation of the whole system: a seed is a run, to the byte of its trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.simulation.client import SimulatedRequest
from tests.simulation.conftest import Apart
from tests.simulation.system.plan import load, save
from tests.simulation.system.planning import make_plan
from tests.simulation.system.run import carry_out
from tests.simulation.world import World
from tstreams.protocol import Commit, CreateStream, OpenAgent, OpenSession, OpenTransaction

ROOT = Path(__file__).parents[2]

DIGEST = """
import sys
from tests.simulation.system.planning import make_plan
from tests.simulation.system.run import carry_out
print(carry_out(make_plan(int(sys.argv[1]))).digest)
"""


def digests(seed: int, path: Path) -> list[str]:
    """The digest of a seed, of the same from a file, and of another seed, one after the other."""
    save(make_plan(seed), path)
    plans = [make_plan(seed), make_plan(seed + 1), load(path)]
    return [carry_out(it).digest for it in plans]


def test_a_seed_is_a_run(apart: Apart, tmp_path: Path) -> None:
    """Whatever ran before, whatever hashes are salted with, and from a file as well."""
    seed = 6
    first, other, again = apart(digests, seed, tmp_path / "plan.json")
    assert first == again
    assert first != other
    for salt in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        found = subprocess.run(
            [sys.executable, "-c", DIGEST, str(seed)],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == first


def test_one_that_was_told_to_have_expired_is_not_open_after_a_restart() -> None:
    """Else it would hold readers back again, and could be checkpointed after all."""
    world = World()

    def ask(message: Struct) -> Any:
        request = SimulatedRequest(message).send(world.handlers)
        world.shard.commit()
        return request.reply

    session = ask(OpenSession()).session
    ask(CreateStream(session, 1, 0, "a", 1, 10**9, ""))
    agent = ask(OpenAgent(session, 2, 0, "producer", "a", "p")).agent
    opened = ask(OpenTransaction(session, 3, 0, agent, 0, 1_000)).id
    world.now_ms += 1_001
    assert ask(Commit(session, 4, 0, [agent], [opened], [])).code == "expired"
    world.storage.lose_power(1)
    world.open_shard()
    assert not world.shard.core.state.open
