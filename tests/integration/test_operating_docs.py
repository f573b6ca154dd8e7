"""The pages about operating: every command on them works, on a server that has what they speak of."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tstreams
from tests.e2e.doc_blocks import ROOT
from tstreams import Offset
from tstreams.cli.main import main

from .discovery.doors import Door, door

CLUSTER = ROOT / "docs" / "operating" / "cluster.md"
"""What is on it is run on a cluster: `clusters/test_development.py`."""
PAGES = sorted(it for it in CLUSTER.parent.glob("*.md") if it != CLUSTER)
BLOCK = re.compile(r"^```(?:sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(?:/opt/tstreams/bin/)?tstreams ([a-z].*)$", re.MULTILINE)
INLINE = re.compile(r"`tstreams ([a-z][^`]*)`")
OUTPUT = ("0.1.0", "top  ")
"""How lines begin that are shown, and are no commands."""
ELSEWHERE = ("serve", "verify")
"""What is no business of a server that runs: other tests run these."""
ID = re.compile(r"\b\d{18}\b")

pytestmark = pytest.mark.xdist_group("cli-operating")


def commands(page: Path) -> list[list[str]]:
    """The commands of a page that are written out, in their order."""
    text = page.read_text().replace("\\\n", " ")
    lines = [line for block in BLOCK.findall(text) for line in COMMAND.findall(block)]
    lines += [line for line in INLINE.findall(text) if "..." not in line and line == line.lower()]
    words = [shlex.split(line, comments=True) for line in lines if not line.startswith(OUTPUT)]
    found = [it for it in words if it[0] not in ELSEWHERE and len(it) > (it[0] != "top")]
    return [it for at, it in enumerate(found) if it not in found[:at]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server with the stream and the consumer that the pages speak of."""
    with door(tmp_path_factory.mktemp("operating") / "data") as made:
        with tstreams.connect(made.tcp) as ts:
            ts.create_stream("clicks", partitions=2)
            with ts.producer("clicks") as producer, ts.consumer("clicks", "billing") as consumer:
                producer.instant([b"one"], partition=0)
                assert consumer.get(0, timeout=30) is not None
                consumer.checkpoint()
        yield made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_works(
    place: Door,
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TSTREAMS_URL", place.url)
    with tstreams.connect(place.tcp) as ts, ExitStack() as stack:
        newest = ts.consumer("clicks", "looker", start=Offset.oldest()).last(0)
        assert newest is not None
        for words in commands(page):
            found = str(newest.id)
            if words[:2] == ["transaction", "cancel"]:  # each of them needs one that is open
                found = str(stack.enter_context(ts.producer("clicks")).open(1).id)
            told = [ID.sub(found, word) for word in words]
            if told[0] == "top" and "--once" not in told:
                told.append("--once")
            if "--url" in told:
                told[told.index("--url") + 1] = place.tcp
            if told[:2] == ["config", "check"]:
                told = ["config", "check", str(ROOT / "deploy" / "systemd" / "tstreams.toml")]
            if told[:2] == ["consumer", "forget"]:
                ts.consumer("clicks", "billing").close()
            assert main(told) == 0, (words, capsys.readouterr())


def test_pages_have_commands() -> None:
    """So that the test above has something to run."""
    found = {page.stem: len(commands(page)) for page in PAGES}
    assert found["troubleshoot"] > 15
    assert found["install"] >= 2
