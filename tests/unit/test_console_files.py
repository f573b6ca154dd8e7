"""The files of the console: nothing from elsewhere, nothing that could turn data into markup, nothing missing."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

import tstreams.discovery

ROOT = Path(str(files(tstreams.discovery))) / "console"
FILES = sorted(path for path in ROOT.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
NAMES = [str(path.relative_to(ROOT)) for path in SCRIPTS]
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|new Function"
)
NAMESPACE = "http://www.w3.org/2000/svg"


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_text_stays_text(script: Path) -> None:
    assert MARKUP.findall(script.read_text()) == []


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_what_it_imports_is_there(script: Path) -> None:
    for name in re.findall(r'^import .* from "(.*)";$', script.read_text(), re.MULTILINE):
        assert (script.parent / name).is_file(), name


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_it_is_of_one_page(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= 400


def test_nothing_comes_from_elsewhere() -> None:
    for path in FILES:
        addresses = re.findall(r"(?:https?:)?//[\w.]+\.\w+[^\s\"'`)]*", path.read_text())
        assert [each for each in addresses if each != NAMESPACE] == [], path


def test_the_first_page_names_files_that_exist() -> None:
    page = (ROOT / "index.html").read_text()
    named = [name for name in re.findall(r'(?:href|src)="([^"#]+)"', page) if "v1/" not in name]
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_file_is_used() -> None:
    text = "".join(path.read_text() for path in FILES)
    assert [
        path.name for path in FILES if path.name not in text and path.name != "index.html"
    ] == []


def test_the_first_page_asks_for_all_scripts_at_once() -> None:
    """Else each is found only when the one that imports it is there: a round trip for each step."""
    page = (ROOT / "index.html").read_text()
    asked = re.findall(r'<link rel="modulepreload" href="([^"]+)">', page)
    begun = re.findall(r'<script (?:type="module" )?src="([^"]+)">', page)
    assert sorted(asked + begun) == NAMES
