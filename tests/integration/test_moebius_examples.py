"""The examples in examples/moebius do what they say: their results, and as scripts."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import moebius
from moebius import Strategy

EXAMPLES = Path(__file__).parents[2] / "examples" / "moebius"
NAMES = ("handlers", "errors", "echo", "strategies", "pings", "thousand", "workers", "show")

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports an example under its own name, as a spawned worker process will do too."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


def run_script(name: str, *options: str, timeout_s: float = 60) -> str:
    """What it printed; it must end well, and without warnings."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *options],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "utf-8", "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_handlers(load: Load) -> None:
    assert load("handlers").run() == {
        "upper": b"HELLO",
        "words": [b"one", b"two", b"three"],
        "nap": b"slept, then awake",
        "lookup": b"found it",
        "countdown": [b"3", b"2", b"1"],
        "notes": [b"buy milk", b"call home"],
    }


def test_errors(load: Load) -> None:
    errors = load("errors")
    story = errors.run()
    assert {command: type(error) for command, error in story.raised.items()} == {
        "divide": moebius.HandlerFailed,
        "buy": errors.OutOfStock,
        "steal": moebius.UnknownCommand,
        "shelves": moebius.HandlerFailed,
    }
    assert story.raised["buy"].code == "shop.out_of_stock"
    assert story.raised["buy"].message == "no more bananas"
    assert "ZeroDivisionError" in story.raised["divide"].message
    assert "'steal'" in story.raised["steal"].message


def test_errors_in_the_middle_of_a_stream(load: Load) -> None:
    story = load("errors").run()
    assert story.items == [b"apples", b"pears"]
    assert "the third shelf fell down" in story.raised["shelves"].message


def test_errors_reach_the_hook_unless_they_are_typed_answers(load: Load) -> None:
    seen = [(command, type(error)) for command, error in load("errors").run().hook_saw]
    assert seen == [("divide", ZeroDivisionError), ("shelves", OSError)]


def test_echo(load: Load) -> None:
    echo = load("echo")
    echoes, raw = echo.run()
    transports = ("tcp", "ipc", "zmq+tcp", "zmq+ipc")
    assert [(e.transport, e.size) for e in echoes] == [
        (transport, size) for transport in transports for size in echo.SIZES
    ]
    assert max(echo.SIZES) == 4 * 1024 * 1024
    assert all(e.same for e in echoes)
    assert [(exchange.header_format, exchange.header) for exchange in raw] == [
        ("msgpack", [18, 1]),
        ("json", [18, 1]),
    ]
    assert [exchange.received[0] for exchange in raw] == [
        msgspec.msgpack.encode([18, 1]),
        msgspec.json.encode([18, 1]),
    ]
    assert all(exchange.received[1:] == [b"hello", b"world"] for exchange in raw)


OUTCOMES = {
    Strategy.QUEUE: ["first done", "second done", "third done"],
    Strategy.REPLACE: ["Replaced", "Replaced", "third done"],
    Strategy.IGNORE: ["first done", "Busy", "Busy"],
    Strategy.PARALLEL: ["first done", "second done", "third done"],
}


def test_strategies(load: Load) -> None:
    strategies = load("strategies")
    stories = strategies.run()
    assert len(stories) == len(Strategy) + 1
    for story in stories:
        assert story.outcomes == {
            name: OUTCOMES[strategy] for name, strategy in story.strategies.items()
        }
        assert story.most_at_once == {
            name: 3 if strategy is Strategy.PARALLEL else 1
            for name, strategy in story.strategies.items()
        }
        for name, strategy in story.strategies.items():
            if strategy in (Strategy.QUEUE, Strategy.REPLACE):
                assert story.order[name] == ["first", "second", "third"]
            elif strategy is Strategy.IGNORE:
                assert story.order[name] == ["second", "third", "first"]


def test_strategies_of_clients_do_not_meet(load: Load) -> None:
    *_, mixed = load("strategies").run()
    assert mixed.strategies == {
        "Ann": Strategy.QUEUE,
        "Bob": Strategy.REPLACE,
        "Eve": Strategy.IGNORE,
    }
    assert mixed.outcomes == {
        name: OUTCOMES[strategy] for name, strategy in mixed.strategies.items()
    }


def test_pings(load: Load) -> None:
    pings = load("pings")
    listeners = pings.run()
    assert sorted(listener.number for listener in listeners) == [1, 2, 3, 4, 5, 6]
    for listener in listeners:
        # Each hears its own number only; the news precede the ping of the same round.
        ping = b"ping %d" % listener.number
        one_round = [ping] if listener.number % 2 else [b"news for the even", ping]
        assert listener.heard == one_round * pings.ROUNDS


def test_a_thousand_clients_sleep_side_by_side(load: Load) -> None:
    story = load("thousand").run(clients=1000, shortest_s=5, longest_s=10)
    assert len(story.naps) == 1000
    assert all(nap.answer == f"slept {nap.seconds:.3f}".encode() for nap in story.naps)
    assert (story.naps[0].seconds, story.naps[-1].seconds) == (5, 10)
    assert all(nap.late_s > -0.05 for nap in story.naps)
    asleep_s = sum(nap.seconds for nap in story.naps)
    assert story.napping_s < asleep_s / 100  # and not one after the other


def test_workers(load: Load) -> None:
    workers = load("workers")
    story = workers.run()
    assert len(story.counts) == workers.CLIENTS == 10
    assert story.counts == {below: primes_below(below) for below in story.counts}
    assert 1 < len(story.worker_pids) <= workers.WORKERS == 5
    assert os.getpid() not in story.worker_pids
    assert len(story.hello_s) > 1
    assert max(story.hello_s) < story.working_s


def test_workers_that_die_are_replaced(load: Load) -> None:
    story = load("workers").run()
    assert type(story.death) is moebius.WorkerDied
    assert story.pid_after not in (0, story.pid_before)


def primes_below(limit: int) -> int:
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return sum(sieve)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("handlers", "one_way           note (twice); the server has [b'buy milk', b'call home']"),
        ("errors", "OutOfStock (shop.out_of_stock): no more bananas"),
        ("echo", "A plain zmq.DEALER with a json header"),
        ("strategies", "Eve  IGNORE    first done    Busy          Busy"),
        ("pings", "client 2 heard 3 pings for it and 3 times the news"),
        ("workers", "its caller got WorkerDied("),
    ],
)
def test_script(name: str, says: str) -> None:
    assert says in run_script(name)


def test_thousand_as_a_script_with_fewer() -> None:
    printed = run_script("thousand", "--clients", "50", "--seconds", "0.2", "0.4")
    assert "50 clients nap 0.2 to 0.4 s each" in printed
    assert "50 answers in" in printed


def test_show() -> None:
    printed = run_script("show", timeout_s=100)
    assert "19 of 19 claims held" in printed
    assert "NOT SO" not in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_every_example_is_in_the_readme() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NAMES)
    assert all(f"[`{name}.py`]({name}.py)" in readme for name in NAMES)
