"""The command line: checking a data folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .cli import Shell, serving, url_in


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a server that wrote a hundred transactions, and stopped."""
    with serving(tmp_path / "data") as line:
        shell = Shell(url_in(line))
        shell.ok("stream", "create", "numbers")
        lines = b"".join(b"%d\n" % number for number in range(1000))
        shell.ok("produce", "numbers", "--batch", "10", stdin=lines)
    return tmp_path / "data"


def test_a_sound_folder(data: Path) -> None:
    done = Shell().ok("verify", str(data))
    assert done.text.startswith(f"{data}: ")
    assert done.text.endswith("100 transactions: everything is whole\n")
    told = Shell().ok("verify", str(data), "--json").json
    assert (told["transactions"], told["problems"]) == (100, [])
    assert told["records"] > 100


def test_a_bit_that_flipped_is_found_and_ends_with_3(data: Path) -> None:
    [ledger] = [path for path in data.rglob("*.ledger") if b"999" in path.read_bytes()]
    content = bytearray(ledger.read_bytes())
    content[content.index(b"999")] ^= 1
    ledger.write_bytes(content)
    done = Shell()("verify", str(data))
    assert done.code == 3
    *problems, last = done.text.splitlines()
    assert problems
    assert last.endswith(f"{len(problems)} problem{'s' * (len(problems) > 1)}")
    told = Shell()("verify", str(data), "--json")
    assert (told.code, told.json["problems"]) == (3, problems)


def test_a_folder_that_is_in_use_or_not_there(tmp_path: Path) -> None:
    with serving(tmp_path / "data"):
        used = Shell()("verify", str(tmp_path / "data"))
    assert used.code == 1
    assert "in use by another server" in used.err
    for place in (tmp_path, tmp_path / "none"):
        none = Shell()("verify", str(place), "--json")
        assert (none.code, none.out) == (1, b"")
        assert json.loads(none.err)["error"] == "not_found"
