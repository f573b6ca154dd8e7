"""Java in a process of Python: completions reach the loop, signals and the end of the process are Python's."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

import pytest

from tests.integration.engines import need_bookkeeper
from tstreams.jars import bookkeeper_jars
from tstreams.ledger.engine import EngineUnavailable
from tstreams.limits import JAVA_REQUESTS_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("log"), pytest.mark.bookkeeper]

START = """
import asyncio, os, signal, sys, time
from tstreams.jars import bookkeeper_jars
from tstreams.ledger import jvm
from tstreams.ledger.jvm_bridge import Bridge
jvm.start(bookkeeper_jars().find())
threads = jvm.java_class("java.util.concurrent.Executors").newFixedThreadPool(1)
latch = jvm.java_class("java.util.concurrent.CountDownLatch")(1)
futures = jvm.java_class("java.util.concurrent.CompletableFuture")
async def main():
    bridge = Bridge()
    await bridge.wait(lambda: futures.completedFuture(None))
    threads.submit(jvm.java_class("java.util.concurrent.FutureTask")(
        jvm.java_class("java.util.concurrent.Executors").callable(
            jvm.java_class("java.lang.Thread")())))  # a thread that is no daemon, and stays
asyncio.run(main())
print("ready", flush=True)
"""


def child(rest: str) -> subprocess.Popen[str]:
    need_bookkeeper()
    process = subprocess.Popen(
        [sys.executable, "-c", START + rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    return process


@pytest.mark.core
def test_a_process_with_java_in_it_ends_when_python_does() -> None:
    process = child("print('done', flush=True)\n")
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    process = child("sys.exit(7)\n")
    process.communicate(timeout=60)
    assert process.returncode == 7


@pytest.mark.core
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_python(number: signal.Signals) -> None:
    process = child(
        "def heard(number, frame):\n    print('heard', number, flush=True)\n    sys.exit(5)\n"
        f"signal.signal({number.value}, heard)\nprint('waits', flush=True)\nsignal.pause()\n"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(number)
    assert process.stdout.readline() == f"heard {number.value}\n"
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (5, "")


def test_an_interrupt_ends_what_waits_for_java() -> None:
    process = child(
        "async def wait():\n    bridge = Bridge()\n    print('waits', flush=True)\n"
        "    await bridge.wait(lambda: futures())\n"
        "try:\n    asyncio.run(wait())\nexcept KeyboardInterrupt:\n    sys.exit(6)\n"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 6


@pytest.fixture
async def bridge() -> AsyncIterator[object]:
    need_bookkeeper()
    from tstreams.ledger import jvm
    from tstreams.ledger.jvm_bridge import Bridge

    jvm.start(bookkeeper_jars().find())
    bridge = Bridge()
    yield bridge
    bridge.close()


async def test_completions_reach_those_who_wait_whatever_thread_they_come_from(
    bridge: object,
) -> None:
    from tstreams.ledger.jvm import java_class
    from tstreams.ledger.jvm_bridge import Bridge, JavaFailed

    assert isinstance(bridge, Bridge)
    future, number = java_class("java.util.concurrent.CompletableFuture"), 3000
    made = [future() for _ in range(number)]
    waiting = [asyncio.ensure_future(bridge.wait(lambda it=it: it)) for it in made]  # type: ignore[misc]

    def complete() -> None:
        for n, it in enumerate(made):
            if n % 3:
                it.complete(java_class("java.lang.Integer").valueOf(n))
            else:
                it.completeExceptionally(java_class("java.lang.RuntimeException")(str(n)))

    thread = threading.Thread(target=complete)
    thread.start()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    thread.join()
    for n, result in enumerate(results):
        if n % 3:
            assert int(result) == n  # type: ignore[arg-type]
        else:
            assert isinstance(result, JavaFailed)
            assert str(result) == f"java.lang.RuntimeException: {n}"
    assert bridge.statistics()["under_way"] == 0
    assert bridge.statistics()["under_way_max"] <= JAVA_REQUESTS_MAX


async def test_what_is_given_up_or_closed_disturbs_nobody(bridge: object) -> None:
    from tstreams.ledger.jvm import java_class
    from tstreams.ledger.jvm_bridge import Bridge

    assert isinstance(bridge, Bridge)
    future = java_class("java.util.concurrent.CompletableFuture")
    first, second = future(), future()
    given_up = asyncio.ensure_future(bridge.wait(lambda: first))
    await asyncio.sleep(0)
    given_up.cancel()
    first.complete(None)
    assert await bridge.wait(lambda: future.completedFuture(None)) is None
    late = asyncio.ensure_future(bridge.wait(lambda: second))
    await asyncio.sleep(0)
    bridge.close()
    with pytest.raises(EngineUnavailable, match="was closed"):
        await late
    second.complete(None)
    with pytest.raises(EngineUnavailable, match="was closed"):
        await bridge.wait(lambda: future.completedFuture(None))
