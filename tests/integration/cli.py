"""Runs the command line for tests: real processes, a real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TSTREAMS = [sys.executable, "-m", "tstreams"]
DEADLINE_S = 60
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TSTREAMS_")}


@dataclass
class Done:
    """What a command did."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Runs commands against one server."""

    def __init__(self, url: str = "", **variables: str) -> None:
        self.variables = {**CLEAN, **variables}
        if url:
            self.variables["TSTREAMS_URL"] = url

    def __call__(self, *words: str, stdin: bytes = b"") -> Done:
        """Run to the end, whatever it is."""
        done = subprocess.run(
            [*TSTREAMS, *words],
            input=stdin,
            capture_output=True,
            env=self.variables,
            timeout=DEADLINE_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def ok(self, *words: str, stdin: bytes = b"") -> Done:
        """Run to the end, which must be a good one."""
        done = self(*words, stdin=stdin)
        assert (done.code, done.err) == (0, "")
        return done

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run while the block does."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*TSTREAMS, *words], stdin=pipe, stdout=pipe, stderr=pipe, env=self.variables
        )
        try:
            with process:
                yield process
                process.wait(DEADLINE_S)
        finally:
            process.kill()


def stream_of(file: IO[bytes] | None) -> IO[bytes]:
    assert file is not None
    return file


@contextmanager
def serving(data: Path, *flags: str, variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """A server while the block runs; it must end with 0. Its first line of output."""
    http = [] if "--http" in flags else ["--http", "off"]
    words = ["serve", "--data", str(data), "--listen", "tcp://127.0.0.1:0", *http, *flags]
    with Shell(**(variables or {})).started(*words) as process:
        line = stream_of(process.stdout).readline().decode()
        try:
            yield line
        finally:
            process.terminate()
            rest, logs = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, logs.decode()
    assert rest == b""


def url_in(line: str) -> str:
    found = re.search(r"tcp://127\.0\.0\.1:\d+", line)
    assert found is not None, line
    return found[0]
