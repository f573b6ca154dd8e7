"""Every command on the page about the command line does what the page says."""

from __future__ import annotations

import doctest
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .doc_blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "reference" / "cli.md"
COMMAND = re.compile(r"^\$ (?P<command>.*)\n(?P<wanted>(?:(?!\$ ).*\n)*)", re.MULTILINE)
DEADLINE_S = 240


def commands() -> list[tuple[str, str]]:
    """The commands of the page and what they print."""
    blocks = [block for block in blocks_of(PAGE) if block.language == "console"]
    return [
        (found["command"], found["wanted"])
        for block in blocks
        for found in COMMAND.finditer(block.text)
    ]


def environment(found: list[tuple[str, str]]) -> dict[str, str]:
    """The script of this interpreter is `tstreams`, and the page's port is the default one."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TSTREAMS_")}
    folder = str(Path(sys.executable).parent)
    url = re.search(r"tcp://[\d.:]+", found[0][0])
    assert url is not None
    return {**clean, "PATH": f"{folder}{os.pathsep}{clean['PATH']}", "TSTREAMS_URL": url[0]}


def printed(command: str, folder: Path, variables: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.stdout + done.stderr


def write_files(folder: Path) -> None:
    """The files that the page shows."""
    for block in blocks_of(PAGE):
        if block.language == "python" and block.title:
            (folder / block.title).write_text(block.text)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    (serve, ready), *rest = found = commands()
    assert len(rest) > 10
    write_files(tmp_path)
    variables = environment(found)
    matches = doctest.OutputChecker().check_output
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen(
        serve.split(), cwd=tmp_path, env=variables, stdout=subprocess.PIPE, stderr=log, text=True
    )
    with log, server:
        try:
            assert server.stdout is not None
            assert matches(ready, server.stdout.readline(), doctest.ELLIPSIS)
            for command, wanted in rest:
                if "verify" in command and server.poll() is None:
                    server.send_signal(signal.SIGTERM)
                    assert server.wait(DEADLINE_S) == 0
                got = printed(command, tmp_path, variables)
                assert matches(wanted, got, doctest.ELLIPSIS), f"$ {command}\n{got}"
        finally:
            server.kill()  # leaving the block waits for its end
