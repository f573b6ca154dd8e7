"""The page about HTTP has every route, with its parameters."""

from __future__ import annotations

from pathlib import Path

from tstreams.discovery.routes import ROUTES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"


def test_the_page_has_every_route_with_its_parameters() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    listed = {row.split("`")[1]: row for row in rows if row.split("`")[1].count(" ") == 1}
    assert set(listed) == {f"{route.method} {route.path}" for route in ROUTES}
    for route in ROUTES:
        row = listed[f"{route.method} {route.path}"]
        assert route.summary in row
        assert all(f"`{query.name}`" in row for query in route.query)
        assert route.body is None or f"`{route.body.__name__}`" in row
