"""What goes wrong with clients, whatever they work against."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from tests.torture.crew import Post
from tests.torture.kinds import Catalogue, Deal
from tests.torture.scene import Scene

ORPHAN_S_MAX = 10.0


class HasScene(Protocol):
    """What a campaign has under it, of which clients are a part."""

    @property
    def scene(self) -> Scene:
        """The clients, among other things."""


W = TypeVar("W", bound=HasScene)


def add_client_faults(catalogue: Catalogue[W]) -> None:
    """Let them be made in this kind of campaign too."""

    def of_clients(
        body: Callable[[Scene, Deal], Iterator[str]],
    ) -> Callable[[W, Deal], Iterator[str]]:
        return lambda world, deal: body(world.scene, deal)

    catalogue.fault("kill-client", "others", weight=2)(of_clients(kill_client))
    catalogue.fault("stop-client", "others")(of_clients(stop_client))
    catalogue.fault("twin", "others")(of_clients(twin))
    catalogue.fault("orphan", "others")(of_clients(orphan))


def _post(scene: Scene, deal: Deal) -> Post:
    return scene.posts[int(deal.pick * len(scene.posts))]


def kill_client(scene: Scene, deal: Deal) -> Iterator[str]:
    """SIGKILL; another of its name begins."""
    post = _post(scene, deal)
    post.kill()
    yield post.name


def stop_client(scene: Scene, deal: Deal) -> Iterator[str]:
    """SIGSTOP, for longer than its leases last."""
    post = _post(scene, deal)
    pid = post.stop()
    try:
        yield f"{post.name}, {deal.length_s:.1f} s"
    finally:
        post.resume(pid)


def twin(scene: Scene, deal: Deal) -> Iterator[str]:
    """A client is stopped, another takes its name, and then it goes on."""
    post = _post(scene, deal)
    pid = post.replace()
    try:
        yield post.name
    finally:
        post.resume(pid)


def orphan(scene: Scene, deal: Deal) -> Iterator[str]:
    """A client opens transactions and vanishes for good: its leases alone end what holds up the readers."""
    name = f"orphan-{len(scene.orphans) + 1}"
    scene.orphans.append(name)
    process = scene.hire("orphan", name).spawn()
    until = time.monotonic() + ORPHAN_S_MAX
    while process.poll() is None and time.monotonic() < until:
        scene.rest(0.05)
    process.kill()
    process.wait()
    yield name
