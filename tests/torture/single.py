"""The campaign against one server: its parts are put together, and end with it."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.checker.recording import Recorder
from tests.torture import shim
from tests.torture.campaign import Campaign, Settings
from tests.torture.faults import SERVER
from tests.torture.namespace import OURS, disk, veth
from tests.torture.panel import Panel
from tests.torture.proxy import Proxy
from tests.torture.resources import Sampler, report
from tests.torture.scene import Scene
from tests.torture.world import FLAGS, TorturedServer, World

DISK_MB, DISK_MB_PER_MINUTE, DISK_MB_MAX = 256, 48, 4096


@contextmanager
def _world(settings: Settings, folder: Path) -> Iterator[World]:
    """All parts, until the end."""
    with ExitStack() as stack:
        small = None
        if "disk" not in settings.barriers:
            megabytes = DISK_MB + int(DISK_MB_PER_MINUTE * settings.minutes)
            small = stack.enter_context(disk(folder / "disk", min(megabytes, DISK_MB_MAX)))
        cable = None if "cable" in settings.barriers else stack.enter_context(veth())
        panel = Panel(folder / "panel")
        server = TorturedServer((small or folder) / "data", *FLAGS, papers=folder)
        if cable is not None:
            server.flags += ("--listen", server.url.replace("127.0.0.1", OURS), "--insecure")
        server.command = [] if "shim" in settings.barriers else shim.build(folder, panel)
        server.command += [sys.executable, "-m", "tests.torture.server"]
        server.command += ["--panel", str(panel.path)]
        server.command += ["--mistake", settings.mistake]
        port = int(server.url.rpartition(":")[2])
        proxy = stack.enter_context(Proxy("127.0.0.1", port, settings.seed))
        scene = Scene(folder, settings.seed, Recorder(folder / "campaign.jsonl"))
        world = World(scene, server, panel, proxy, small, cable)
        stack.callback(world.close)
        if settings.spark:
            from tests.crash.spark.post import Post

            (folder / "tmp").mkdir()
            rng = random.Random(f"{settings.seed} spark")
            world.spark = Post(server.url, folder, rng)
        yield world


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Do it. The report."""
    began = time.monotonic()
    with _world(settings, folder) as world:
        campaign = Campaign(settings, world, SERVER)
        with Sampler(lambda: world.server.pid) as sampler:
            campaign.run()
            verdict = campaign.finish()
        resources = report(sampler.samples, world.scene.told_to_end_s)
        verdict.findings += [f"leak: {it}: {resources[it]}" for it in resources["leaks"]]
        return {
            **campaign.report(verdict),
            "resources": resources,
            "minutes": settings.minutes,
            "seconds": round(time.monotonic() - began, 1),
            "seed": settings.seed,
        }
