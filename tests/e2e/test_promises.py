"""The tests that the page of promises names exist."""

from __future__ import annotations

import re

import pytest

from .doc_blocks import ROOT

PAGE = ROOT / "docs" / "concepts" / "promises.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text())))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=["::".join(pair) for pair in NAMED])
def test_it_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text()
    assert re.search(
        rf"^(async )?(def|class) {name}\b" if name else "def test_", text, re.MULTILINE
    )


def test_every_promise_has_its_section() -> None:
    sections = re.findall(r"^### (G\d+)", PAGE.read_text(), re.MULTILINE)
    assert sections == [f"G{number}" for number in range(1, 11)]
    assert len(NAMED) > 20
