"""Run the Python blocks of the documentation, and compare what they print.

    python -m tests.e2e.doc_blocks [page.md ...]     default: README.md and every page under docs/

Each page gets an empty folder. A block with a title is written there under that name (so that later
blocks can import it); then it is run, as `python -m pytest -q` if its name begins with `test_`. A
block `text title="Output"` that follows must be what was printed; `...` stands for anything.

A comment before a block changes what is done with it:

    <!-- check: background -->   start it and leave it running until the page ends
    <!-- check: skip -->         do not run it (it is a sketch, and the page says so)
    <!-- check: run -->          run a `sh` block too

Ends with status 1 if any block failed.
"""

from __future__ import annotations

import doctest
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 200
PORTS = ("7070", "7071", "7072", "7080")
FENCE = re.compile(
    r"^(?:<!-- check: (?P<mark>\w+) -->\n+)?"
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]*)")?[^\n]*\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    title: str
    mark: str
    text: str


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order. The ports that pages use become free ones."""
    ports = {port: str(free_port()) for port in PORTS}
    text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: ports[found[0]], page.read_text())
    return [
        Block(
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["title"] or "",
            found["mark"] or "",
            found["text"],
        )
        for found in FENCE.finditer(text)
    ]


def command_of(block: Block, folder: Path) -> list[str] | None:
    """How to run a block; None if it is not to be run."""
    if block.mark == "skip":
        return None
    if block.language == "sh" and block.mark == "run":
        return ["sh", "-e", "-c", block.text]
    if block.language != "python":
        return None
    name = block.title if block.title.endswith(".py") else f"block_{block.line}.py"
    (folder / name).write_text(block.text)
    if name.startswith("test_"):
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    return [sys.executable, name]


def check(page: Path) -> list[str]:
    """What is wrong with a page's blocks."""
    problems: list[str] = []
    blocks = blocks_of(page)
    running: list[subprocess.Popen[bytes]] = []
    ran = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            for index, block in enumerate(blocks):
                command = command_of(block, folder)
                if command is None:
                    continue
                ran += 1
                if block.mark == "background":
                    running.append(subprocess.Popen(command, cwd=folder))
                    continue
                follows = blocks[index + 1] if index + 1 < len(blocks) else None
                wanted = follows.text if follows and follows.title == "Output" else None
                problem = run(command, folder, wanted)
                if problem:
                    problems.append(f"{page.relative_to(ROOT)}:{block.line}: {problem}")
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            statuses = [process.wait(TIMEOUT_S) for process in running]
            if any(statuses):
                problems.append(f"{page.relative_to(ROOT)}: a background block failed")
    print(f"{page.relative_to(ROOT)}: {ran} blocks", flush=True)
    return problems


def run(command: list[str], folder: Path, wanted: str | None) -> str:
    """Run one block; what is wrong, or nothing."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {TIMEOUT_S} s"
    if done.returncode != 0:
        return f"ended with {done.returncode}\n{done.stdout}{done.stderr}"
    matches = doctest.OutputChecker().check_output
    if wanted is not None and not matches(wanted, done.stdout, doctest.ELLIPSIS):
        return f"printed\n{done.stdout}instead of\n{wanted}{done.stderr}"
    return ""


def pages_with_blocks() -> list[Path]:
    """The README and every page that has a Python block."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if "```python" in page.read_text()]


def main() -> int:
    """Check the pages that were named, or all."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    problems = [problem for page in named or pages_with_blocks() for problem in check(page)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
