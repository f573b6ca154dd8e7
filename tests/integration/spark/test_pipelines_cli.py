"""`tstreams pipeline run`: real processes, a Spark Connect server, real signals."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from tstreams import Client

from .conftest import Pipe
from .test_examples import COUNTS, EXAMPLES
from .test_pipelines import assert_nothing_is_open
from .test_source import fill

DEADLINE_S = 240

pytestmark = [pytest.mark.xdist_group("spark-connect"), pytest.mark.timeout(600)]

PIPELINES = """
import os
from pyspark.sql.functions import col, udf
from tstreams.spark import pipeline

SOURCE, SINK = os.environ["SOURCE"], os.environ["SINK"]

@udf("string")
def shouted(item):
    return mark(item.decode())

def mark(text):  # travels to the workers with the function that calls it
    return text + "!"

@pipeline(source={"stream": SOURCE, "maxTransactionsPerTrigger": 2}, sink={"stream": SINK})
def shout(rows):
    return rows.select(shouted("item").alias("item"), col("item").alias("key"))

@pipeline(source={"stream": "no-such-stream"}, sink={"stream": SINK})
def lost(rows):
    return rows.select("item")
"""


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server: the one that the example starts."""
    spec = importlib.util.spec_from_file_location("connect_example", EXAMPLES / "connect.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec.loader.exec_module(example)
    finally:
        sys.path.remove(str(EXAMPLES))
    with example.connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture
def streams(ts: Client, make: Any) -> tuple[str, str]:
    """A source with much in it, and a sink."""
    source, sink = make(2), make(3)
    fill(ts, source, 40)
    return source, sink


class Command:
    """Runs `tstreams pipeline run` on the streams of a test."""

    def __init__(self, url: str, folder: Path, streams: tuple[str, str]) -> None:
        self.folder = folder
        self.file = folder / "pipelines.py"
        self.file.write_text(PIPELINES)
        names = dict(zip(("SOURCE", "SINK"), streams, strict=True))
        self.variables = {**os.environ, "TSTREAMS_URL": url, "SPARK_LOCAL_IP": "127.0.0.1", **names}

    def words(self, name: str, *flags: str) -> list[str]:
        return [sys.executable, "-m", "tstreams", "pipeline", "run", f"{self.file}:{name}", *flags]

    def __call__(self, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(name, *flags),
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    @contextlib.contextmanager
    def started(self, name: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
        """In a process group of its own: what a terminal sends signals to."""
        with (self.folder / "stderr").open("w") as errors:
            process = subprocess.Popen(
                self.words(name, *flags),
                cwd=self.folder,
                env=self.variables,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        try:
            with process:
                yield process
                process.wait(DEADLINE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def command(url: str, tmp_path: Path, streams: tuple[str, str]) -> Command:
    return Command(url, tmp_path, streams)


def shouts(pipe: Pipe, source: str) -> Counter[bytes]:
    return Counter(item + b"!" for item in pipe.items(source))


@pytest.fixture
def pipe(url: str, ts: Client, tmp_path: Path) -> Pipe:
    """Without a session of this process: there is none beside that of the server."""
    return Pipe(None, url, ts, tmp_path)  # type: ignore[arg-type]


def test_once_with_json_on_a_connect_server(
    command: Command, remote: str, pipe: Pipe, streams: tuple[str, str]
) -> None:
    source, sink = streams
    done = command("shout", "--once", "--json", "--remote", remote)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(pipe.items(sink)) == shouts(pipe, source)
    *events, last = map(json.loads, done.stdout.splitlines())
    assert [it["state"] for it in events if it["event"] == "state"] == [
        "starting",
        "running",
        "done",
    ]
    batches = [it for it in events if it["event"] == "progress"]
    assert [it["batch"] for it in batches] == list(range(len(batches)))
    assert len(batches) > 5
    assert batches[0]["lag_s"] >= batches[-1]["lag_s"] == 0
    assert last["event"] == "summary"
    assert last["pipelines"] == [
        {
            "pipeline": "shout",
            "state": "done",
            "batches": len(batches),
            "rows": len(pipe.items(source)),
            "restarts": 0,
            "cut": False,
            "error": None,
        }
    ]
    # It goes on where it ended: nothing is there, and nothing comes twice.
    again = command("shout", "--once", "--remote", remote)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (
        0,
        "shout: done, 0 batches, 0 rows",
    )
    assert Counter(pipe.items(sink)) == shouts(pipe, source)


def until_progress(file: IO[str] | None) -> list[str]:
    """Read until a micro-batch is done."""
    assert file is not None
    lines = []
    for line in file:
        lines.append(line)
        if '"event": "progress"' in line:
            return lines
    raise AssertionError(lines)


def stopped_by(
    process: subprocess.Popen[str], number: signal.Signals, errors: Path
) -> dict[str, Any]:
    """Send a signal after the first micro-batch. The summary."""
    until_progress(process.stdout)
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: to Spark's processes as well
    else:
        process.send_signal(number)
    assert process.stdout is not None
    rest = process.stdout.read().splitlines()
    assert process.wait(DEADLINE_S) == 0, errors.read_text()[-4000:]
    found: dict[str, Any] = json.loads(rest[-1])["pipelines"][0]
    assert next(json.loads(it)["state"] for it in rest if '"state": "stop' in it) == "stopping"
    return found


def test_sigterm_stops_between_micro_batches(
    command: Command, remote: str, pipe: Pipe, ts: Client, streams: tuple[str, str], tmp_path: Path
) -> None:
    source, sink = streams
    with command.started("shout", "--json", "--remote", remote) as process:
        found = stopped_by(process, signal.SIGTERM, tmp_path / "stderr")
    assert (found["state"], found["cut"], found["error"]) == ("stopped", False, None)
    assert_nothing_is_open(ts, sink)
    items = Counter(pipe.items(sink))
    del items[b"the end"]
    assert items <= shouts(pipe, source)
    assert items.total() == found["rows"] > 0


@pytest.mark.slow
def test_ctrl_c_in_a_session_of_its_own(
    command: Command, pipe: Pipe, ts: Client, streams: tuple[str, str], tmp_path: Path
) -> None:
    source, sink = streams
    flags = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2", "--json")
    with command.started("shout", *flags) as process:
        found = stopped_by(process, signal.SIGINT, tmp_path / "stderr")
    assert (found["state"], found["cut"], found["error"]) == ("stopped", False, None)
    assert_nothing_is_open(ts, sink)
    items = Counter(pipe.items(sink))
    del items[b"the end"]
    assert items <= shouts(pipe, source)
    assert items.total() == found["rows"] > 0


@pytest.mark.slow
def test_a_java_that_dies_ends_the_command(command: Command, tmp_path: Path) -> None:
    with command.started("shout", "--master", "local[2]", "--json") as process:
        until_progress(process.stdout)
        (java,) = [it for it in psutil.Process(process.pid).children() if it.name() == "java"]
        java.kill()
        assert process.wait(DEADLINE_S) == 1
    lines = (tmp_path / "stderr").read_text().splitlines()
    told = json.loads([it for it in lines if it.startswith("{")][-1])  # Py4J may complain after it
    assert told["error"] == "unavailable"
    assert re.match("Spark's Java process has ended|Spark: ", told["message"])


def test_one_that_fails_for_good(command: Command, remote: str) -> None:
    done = command("lost", "--remote", remote, "--restarts", "1", "--backoff", "2s", "--json")
    assert done.returncode == 1
    *events, last = map(json.loads, done.stdout.splitlines())
    reason = "tstreams.errors.NotFound: there is no stream 'no-such-stream'"
    assert [(it["state"], it["error"]) for it in events] == [
        ("waiting", reason),
        ("failed", reason),
    ]
    assert events[0]["retry_in_s"] == 2
    assert (last["pipelines"][0]["state"], last["pipelines"][0]["restarts"]) == ("failed", 1)


def test_what_makes_no_sense(command: Command, tmp_path: Path) -> None:
    both = command("shout", "--master", "local", "--remote", "sc://127.0.0.1:1")
    assert both.returncode == 2
    assert "--master and --remote exclude each other" in both.stderr
    setting = command("shout", "--conf", "nonsense")
    assert setting.returncode == 2
    assert "'nonsense' is not KEY=VALUE" in setting.stderr
    nowhere = command("shout", "--remote", "sc://127.0.0.1:1")
    assert nowhere.returncode == 1
    assert "no Spark Connect server answers at sc://127.0.0.1:1" in nowhere.stderr
    command.file = tmp_path / "missing.py"
    missing = command("shout")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == f"tstreams: there is no file {command.file}\n"


def test_the_connect_example(remote: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "connect.py")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "SPARK_REMOTE": remote},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == ["with Spark Connect:", *COUNTS]


def test_a_declarative_pipeline(
    remote: str, url: str, pipe: Pipe, ts: Client, tmp_path: Path
) -> None:
    """With streams as its source and its sink; a second run takes only what is new."""
    project = tmp_path / "declarative"
    shutil.copytree(EXAMPLES / "declarative", project)
    spec = project / "spark-pipeline.yml"
    text, found = re.subn(r"storage: .*", f"storage: file://{tmp_path}/storage", spec.read_text())
    assert found == 1
    spec.write_text(text)
    ts.create_stream("lines", 2)
    ts.create_stream("loud", 2)

    def run() -> list[bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(spec)],
            cwd=project,
            env={**os.environ, "SPARK_REMOTE": remote, "TSTREAMS_URL": url},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted(pipe.items("loud"))

    with ts.producer("lines") as producer:
        producer.instant([b"one two", b"three"], partition=0)
        assert run() == [b"ONE", b"THREE", b"TWO"]
        producer.instant([b"four"], partition=1)
        assert run() == [b"FOUR", b"ONE", b"THREE", b"TWO"]
