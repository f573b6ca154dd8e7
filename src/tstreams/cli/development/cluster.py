"""A development cluster: ZooKeeper, the servers of an engine and nodes, all on loopback, with everything in one folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ...cluster.coordination import new_cluster
from ...cluster.engines.zookeeper import ZooKeeperServer, find_jars
from ...config import PREFIX
from ...errors import BadRequest, InvalidState, NotFound, Unavailable
from ...java import find_java
from . import processes
from .engines import ENGINES, EngineServers
from .ports import lasting_ports
from .processes import MARK, is_running, started
from .state import FILE, LOCK, NodePlan, State, load, locked, save

ZOOKEEPER = "zookeeper"
NODES = 3
READY_S = 120.0
"""How long nodes may take to be ready: a slow machine makes the logs of many shards."""
_LOOK_S = 0.05
_WORDS = 5
"""Lines of a log that are shown when its process has ended."""

Step: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Told what is done next: `with step("node-1"): ...`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a cluster should be. `nodes` None: as many as there are, or three."""

    name: str
    log: str
    shards: int
    nodes: int | None

    def fits(self, state: State) -> bool:
        """Whether what is there is that."""
        if self.nodes is not None and self.nodes != len(state.nodes):
            return False
        return (self.name, self.log, self.shards) == (state.name, state.log, state.shards)


class Development:
    """The cluster of a folder. Every method may be called again after a crash of the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def state(self) -> State:
        """What is there. `NotFound` if there is no cluster."""
        found = load(self.folder)
        if found is None:
            raise NotFound(
                f"there is no development cluster in {self.folder}: `tstreams cluster up` starts one, --dir names "
                "another folder"
            )
        return found

    def node_id(self, name: str) -> str:
        """The id of a node, as its data folder has it; empty: it never started."""
        try:
            return self.folder.joinpath(name, "node").read_text().strip()
        except FileNotFoundError:
            return ""

    def runs(self, state: State, name: str) -> bool:
        """Whether one of its processes runs."""
        return is_running(state.processes.get(name))

    # Starting.

    def up(self, shape: Shape, step: Step) -> State:
        """Start all that does not run. `InvalidState` if the folder has a cluster of another shape; `Unavailable` if
        something is missing on this machine. If it fails, what it has started is ended."""
        log = shape.log
        if log not in ENGINES:
            raise BadRequest(f"no engine is called {log!r}: there are {', '.join(ENGINES)}")
        find_java("ZooKeeper")
        find_jars()
        ENGINES[log].check()
        with locked(self.folder), self._marked():
            state = load(self.folder) or _planned(shape)
            if not shape.fits(state):
                raise InvalidState(
                    f"{self.folder} has a cluster of another shape ({state.name}, logs on {state.log}, "
                    f"{state.shards} shards, {len(state.nodes)} nodes): end it with `tstreams cluster down`, or "
                    "choose another --dir. `tstreams cluster add` starts another node"
                )
            save(self.folder, state)
            with self._all_or_nothing(state):
                self._start_servers(state, step)
                self._start_nodes(state, state.nodes, step)
            return state

    def add(self, step: Step) -> NodePlan:
        """Start another node."""
        with locked(self.folder), self._marked():
            state = self.state()
            self._check_up(state)
            last = max((int(it.name.partition("-")[2]) for it in state.nodes), default=0)
            plan = NodePlan(f"node-{last + 1}", *lasting_ports(2))
            state.nodes.append(plan)
            save(self.folder, state)
            with self._all_or_nothing(state):
                self._start_nodes(state, [plan], step)
            return plan

    def restart(self, names: Sequence[str], step: Step, settled: Callable[[State], bool]) -> State:
        """End and start nodes, one after the other; the next one when `settled` says that all is well again. None named:
        all of them."""
        with locked(self.folder), self._marked():
            state = self.state()
            self._check_up(state)
            plans = [it for it in state.nodes if not names or it.name in names]
            unknown = set(names) - {it.name for it in plans}
            if unknown:
                known = ", ".join(it.name for it in state.nodes)
                raise NotFound(f"there is no {', '.join(sorted(unknown))} here: there are {known}")
            for plan in plans:
                with step(f"{plan.name} ends"):
                    self._end(state, [plan.name])
                self._start_nodes(state, [plan], step)
                with step("everything has found its place"):
                    _wait_until(lambda: settled(state), "the cluster did not come to rest")
            return state

    def _start_servers(self, state: State, step: Step) -> None:
        zookeeper = ZooKeeperServer(self.folder / ZOOKEEPER, port=state.zookeeper_port)
        with step("ZooKeeper"):
            if not self.runs(state, ZOOKEEPER):
                zookeeper.launch()
                self._note(state, ZOOKEEPER, zookeeper.pid)
                zookeeper.wait()
        engine = ENGINES[state.log](self.folder, state.engine_ports, zookeeper.address)
        with step(engine.title):
            for name in engine.names:
                if not self.runs(state, name):
                    self._note(state, name, engine.launch(name))
            engine.wait()
        with step(f"cluster {state.name}, {state.shards} shards"):
            self._create(state, zookeeper.address, engine)

    def _create(self, state: State, zookeeper: str, engine: EngineServers) -> None:
        from ...server.engines import engine_kind
        from ..cluster_create import create

        wanted = new_cluster(
            state.name,
            shards=state.shards,
            replicas=state.replicas,
            engine=state.log,
            engine_settings=engine_kind(state.log).check(engine.settings()),
        )
        asyncio.run(create(zookeeper, wanted))

    def _start_nodes(self, state: State, plans: Sequence[NodePlan], step: Step) -> None:
        """All at once; then wait for one after the other."""
        for plan in plans:
            if not self.runs(state, plan.name):
                self._ready_file(plan).unlink(missing_ok=True)
                self._launch_node(state, plan)
        for plan in plans:
            with step(f"{plan.name} at {plan.address}"):
                _wait_until(partial(self._is_ready, state, plan), f"{plan.name} is not ready")

    def _launch_node(self, state: State, plan: NodePlan) -> None:
        command = [sys.executable, "-P", "-m", "tstreams", "serve"]
        command += ["--data", str(self.folder / plan.name), "--listen", plan.address]
        command += ["--http", f"127.0.0.1:{plan.http_port}", "--cluster", state.name]
        command += ["--zookeeper", f"127.0.0.1:{state.zookeeper_port}"]
        command += ["--ready-file", str(self._ready_file(plan))]
        # Settings of whoever calls are for another server.
        environment = {name: it for name, it in os.environ.items() if not name.startswith(PREFIX)}
        with self.log(plan.name).open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**environment, MARK: str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._note(state, plan.name, process.pid)

    def _is_ready(self, state: State, plan: NodePlan) -> bool:
        if self._ready_file(plan).exists():
            return True
        if not self.runs(state, plan.name):
            raise Unavailable(f"{plan.name} has ended: {self._last_words(plan.name)}")
        return False

    # Ending.

    def ended(self) -> list[str]:
        """Processes that should run and do not; none while somebody else is at work here."""
        try:
            with locked(self.folder):
                state = self.state()
                return [it for it in state.processes if not self.runs(state, it)]
        except InvalidState:
            return []

    def down(self, *, keep_data: bool, step: Step, wait_s: float = 0.0) -> None:
        """End everything, and remove it, or all but the data. A folder without a cluster is no error. If somebody else
        is at work here, that is waited for, so long."""
        if not self.folder.exists():
            return
        with locked(self.folder, wait_s):
            state = load(self.folder)
            nodes = [] if state is None else [it.name for it in state.nodes]
            if state is not None:
                for names, title in (
                    (nodes, "nodes"),
                    ([it for it in state.processes if it not in (*nodes, ZOOKEEPER)], state.log),
                    ([ZOOKEEPER], "ZooKeeper"),
                ):
                    with step(f"{title} ended"):
                        self._end(state, names)
            processes.end(processes.marked(self.folder))  # of a start that was interrupted
            for name in nodes:
                self.folder.joinpath(f"{name}.ready").unlink(missing_ok=True)
                self.folder.joinpath(name, "lock").unlink(missing_ok=True)
            if state is not None and not keep_data:
                self._remove(state)
        self.folder.joinpath(LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else has put something there
            self.folder.rmdir()

    def _remove(self, state: State) -> None:
        """Only what is ours: the folder may be somebody's home."""
        engine = ENGINES[state.log](self.folder, state.engine_ports, "")
        for name in (ZOOKEEPER, *engine.names, *(it.name for it in state.nodes)):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            self.log(name).unlink(missing_ok=True)
        self.folder.joinpath(FILE).unlink(missing_ok=True)

    def forget(self, name: str) -> None:
        """Forget a node that does not run, and remove its data. `InvalidState` if it runs."""
        with locked(self.folder):
            state = self.state()
            if self.runs(state, name):
                raise InvalidState(f"{name} runs")
            state.nodes = [it for it in state.nodes if it.name != name]
            state.processes.pop(name, None)
            save(self.folder, state)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            self.log(name).unlink(missing_ok=True)

    def end_node(self, name: str) -> None:
        """End a node."""
        with locked(self.folder):
            self._end(self.state(), [name])

    def _end(self, state: State, names: Sequence[str]) -> None:
        processes.end([state.processes[it] for it in names if it in state.processes])
        for name in names:
            state.processes.pop(name, None)
        save(self.folder, state)

    @contextlib.contextmanager
    def _all_or_nothing(self, state: State) -> Iterator[None]:
        """End what was started inside if it fails."""
        before = set(state.processes)
        try:
            yield
        except BaseException:
            self._end(state, [it for it in state.processes if it not in before])
            raise

    # Details.

    def log(self, name: str) -> Path:
        """What a node says."""
        return self.folder / f"{name}.log"

    def _ready_file(self, plan: NodePlan) -> Path:
        return self.folder / f"{plan.name}.ready"

    def _note(self, state: State, name: str, pid: int) -> None:
        state.processes[name] = started(pid)
        save(self.folder, state)

    def _check_up(self, state: State) -> None:
        if not self.runs(state, ZOOKEEPER):
            raise InvalidState(f"the cluster in {self.folder} is down: `tstreams cluster up` first")

    @contextlib.contextmanager
    def _marked(self) -> Iterator[None]:
        """What is started inside carries the mark."""
        before = os.environ.get(MARK)
        os.environ[MARK] = str(self.folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ[MARK]
            else:
                os.environ[MARK] = before

    def _last_words(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()
        return f"{'; '.join(lines[-_WORDS:])} ({self.log(name)})"


def _planned(shape: Shape) -> State:
    nodes = shape.nodes or NODES
    needed = ENGINES[shape.log].ports_needed
    zookeeper, *others = lasting_ports(
        1 + needed + 2 * nodes
    )  # all at once: none is given out twice
    engine, rest = others[:needed], others[needed:]
    plans = [NodePlan(f"node-{n + 1}", rest[2 * n], rest[2 * n + 1]) for n in range(nodes)]
    return State(shape.name, shape.log, shape.shards, min(3, nodes), zookeeper, engine, plans)


def _wait_until(condition: Callable[[], bool], late: str) -> None:
    deadline = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline:
            raise Unavailable(f"{late} after {READY_S:g} s")
        time.sleep(_LOOK_S)
