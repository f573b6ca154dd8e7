"""Every Python block of the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from .doc_blocks import ROOT, check, pages_with_blocks

PAGES = pages_with_blocks()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_code_of_a_page_runs(page: Path) -> None:
    assert check(page) == []
