"""Every page: can everybody use it, does it fit, does it say what to do when there is nothing, or no server."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import tstreams
from tests.integration.discovery.doors import door
from tstreams import Offset

from .browser import Opener, Theme, opening, troubles_of
from .load import CLICKS, ORDERS, PAYMENTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("console"),
]
ORDERS_PAGE = f"#/streams/{quote(ORDERS, safe='')}"
PAGES = (
    "#/overview",
    "#/streams",
    "#/streams?search=nothing-has-such-a-name",
    ORDERS_PAGE,
    f"{ORDERS_PAGE}?tab=partitions",
    f"{ORDERS_PAGE}?tab=consumers",
    f"{ORDERS_PAGE}?tab=open",
    f"#/streams/{quote(CLICKS, safe='')}",
    f"{ORDERS_PAGE}/consumers/billing",
    "#/consumers",
    "#/open",
    "#/jobs",
    "#/ledgers",
    "#/nodes",
    "#/sessions",
    "#/config",
    "#/no/such/page",
)
NARROW = 390
CUT_OFF = """[...document.querySelectorAll("main .table :is(th, td)")]
  .filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText)"""
"""Cells of tables that do not show all of their text."""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(tabs: Opener, theme: Theme) -> None:
    tab = tabs(theme)
    tab.open()
    found = []
    for where in PAGES:
        tab.go(where)
        found += troubles_of(tab)
    tab.go(ORDERS_PAGE)
    for action in ("Write test transaction", "Change", "Purge", "Delete"):
        tab.page.get_by_role("button", name=action).click()
        expect(tab.page.get_by_role("dialog")).to_be_visible()
        found += troubles_of(tab)
        tab.page.keyboard.press("Escape")
        expect(tab.page.get_by_role("dialog")).to_be_hidden()
    assert found == []


def test_axe_is_awake(tabs: Opener) -> None:
    tab = tabs()
    tab.open("#/config")
    tab.page.evaluate("document.querySelector('main h1').style.color = '#ddd'")
    assert any("color-contrast" in trouble for trouble in troubles_of(tab))


def test_it_fits_a_telephone(tabs: Opener) -> None:
    tab = tabs("dark", width=NARROW, height=844)
    tab.open()
    for where in PAGES:
        tab.go(where)
        wide = tab.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= NARROW, where
        assert tab.page.evaluate(CUT_OFF) == [], where
    tab.go("#/overview")
    tab.shoot("telephone-overview")
    tab.go(ORDERS_PAGE)
    tab.shoot("telephone-stream")


def test_by_keyboard_alone(tabs: Opener) -> None:
    tab = tabs()
    tab.open("#/streams?search=sensor/00")
    press = tab.page.keyboard.press
    press("Tab")
    assert tab.focused() == "Skip to content"
    press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "main"
    press("/")
    assert tab.focused() == "Search streams"
    press("ArrowDown")
    first = tab.focused()
    press("ArrowDown")
    second = tab.focused()
    press("End")
    last = tab.focused()
    assert first < second < last
    press("Home")
    assert tab.focused() == first
    press("Enter")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text(first)
    tab.settle()
    change = tab.page.get_by_role("button", name="Change", exact=True)
    change.focus()
    press("Enter")
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    press("Escape")
    expect(tab.page.get_by_role("dialog")).to_be_hidden()
    expect(change).to_be_focused()
    press("g")
    press("c")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Consumers")
    press("?")
    expect(tab.page.get_by_role("dialog")).to_contain_text("From row to row")


def test_more_rows_and_their_order(tabs: Opener) -> None:
    tab = tabs()
    tab.open("#/streams")
    names = tab.page.get_by_role("table", name="Streams").locator("tbody a")
    expect(names).to_have_count(50)
    tab.page.get_by_role("button", name="Load more").click()
    expect(names).to_have_count(100)
    shown = names.all_inner_texts()
    assert shown == sorted(shown)
    tab.go(f"{ORDERS_PAGE}?tab=partitions")
    links = tab.page.get_by_role("table", name="Partitions").locator("tbody a.name")
    assert links.all_inner_texts() == ["0", "1", "2", "3"]
    tab.page.get_by_role("button", name="Partition", exact=True).click(click_count=2, delay=50)
    expect(links.first).to_have_text("3")


def test_choices_are_remembered(tabs: Opener) -> None:
    tab = tabs("light")
    tab.open(ORDERS_PAGE)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.page.evaluate(ground)
    for _ in range(2):
        tab.page.get_by_role("button", name="Theme").click()
    dark = tab.page.evaluate(ground)
    assert light != dark
    opened = tab.page.locator("tbody time").first
    local = opened.inner_text()
    assert "UTC+05:45" in str(opened.get_attribute("title"))
    tab.page.get_by_role("button", name="Times").click()
    assert opened.inner_text() != local
    assert "UTC+" not in str(opened.get_attribute("title"))
    tab.page.reload()
    tab.settle()
    assert tab.page.evaluate(ground) == dark
    assert "+" not in str(tab.page.locator("tbody time").first.get_attribute("title"))


def test_the_life_of_a_stream(tabs: Opener, ts: tstreams.Client) -> None:
    name = "life/<img src=x onerror=alert(1)> & 100% ü?#"
    tab = tabs()
    tab.open("#/streams")
    tab.page.get_by_role("button", name="Create stream").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("Keep data for").fill("36h")
    dialog.get_by_role("button", name="Create stream").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text(name)
    assert ts.stream(name).ttl == timedelta(hours=36)
    tab.settle()

    tab.page.get_by_role("button", name="Write test transaction").click()
    dialog.get_by_label("Items").fill("<script>alert(2)</script>\nsecond")
    dialog.get_by_label("Which").fill("1")
    dialog.get_by_role("button", name="Write").click()
    expect(dialog).to_be_hidden()
    with ts.consumer(name, name="c", start=Offset.oldest()) as consumer:
        written = consumer.get(partition=1, timeout=20)
    assert written is not None
    assert list(written.items) == [b"<script>alert(2)</script>", b"second"]
    tab.page.get_by_label("Partition", exact=True).select_option("1")
    items = tab.page.get_by_role("region", name="Items")
    expect(items).to_contain_text("<script>alert(2)</script>")

    tab.page.get_by_role("button", name="Change", exact=True).click()
    dialog.get_by_label("Keep data for").fill("1h")
    expect(dialog).to_contain_text("Whatever is older than 1 h will be dropped")
    dialog.get_by_label("Description").fill("shorter now")
    dialog.get_by_role("button", name="Save").click()
    expect(tab.page.get_by_role("main")).to_contain_text("shorter now")
    assert ts.stream(name).ttl == timedelta(hours=1)

    tab.page.get_by_role("button", name="Purge", exact=True).click()
    dialog.get_by_label("Drop what was opened before").fill(str(written.id + 1))
    expect(dialog).to_contain_text("This cannot be undone")
    dialog.get_by_role("button", name="Purge").click()
    expect(dialog).to_be_hidden()
    with ts.consumer(name, name="d", start=Offset.oldest()) as consumer:
        assert consumer.by_id(1, written.id) is None

    tab.failures_expected = True  # the page may ask once more for what is gone
    tab.page.get_by_role("button", name="Delete", exact=True).click()
    button = dialog.get_by_role("button", name="Delete stream")
    expect(button).to_be_disabled()
    dialog.get_by_label("Type its name to confirm").fill(name)
    button.click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Streams")
    with pytest.raises(tstreams.NotFound):
        ts.stream(name)


def test_rows_of_a_typed_stream(tabs: Opener, ts: tstreams.Client) -> None:
    schema = pa.schema([("symbol", pa.string()), ("price", pa.float64())])
    ts.create_stream("trades", schema=schema)
    with ts.producer("trades", name="p") as producer, producer.transaction(partition=0) as txn:
        txn.send_many(
            pa.record_batch({"symbol": ["ACME", "GLOBEX"], "price": [17.25, 4.5]}, schema)
        )
    tab = tabs("dark")
    tab.open("#/streams/trades")
    rows = tab.page.get_by_role("table", name="Rows")
    expect(rows.get_by_role("row")).to_have_text(["#symbolprice", "0ACME17.25", "1GLOBEX4.5"])
    tab.page.get_by_role("button", name="Write test transaction").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Items").fill('{"symbol": "INITECH", "price": 1.5}')
    dialog.get_by_role("button", name="Write").click()
    expect(dialog).to_be_hidden()
    tab.page.get_by_role("button", name="Newest").click()
    expect(rows).to_contain_text("INITECH")
    tab.page.get_by_role("link", name="Schema").click()
    expect(tab.page.get_by_role("table", name="Columns")).to_contain_text("double")


def test_what_is_not_there_and_what_is_refused(tabs: Opener) -> None:
    tab = tabs()
    tab.failures_expected = True
    tab.open("#/streams/nobody-made-this")
    expect(tab.page.get_by_role("alert")).to_contain_text("nobody-made-this")
    tab.go("#/streams")
    tab.page.get_by_role("button", name="Create stream").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(PAYMENTS)
    dialog.get_by_role("button", name="Create stream").click()
    expect(dialog.get_by_role("alert")).to_contain_text(PAYMENTS)
    expect(dialog.get_by_role("button", name="Create stream")).to_be_enabled()


def test_a_server_that_is_new_and_then_gone(browser: Browser, tmp_path: Path) -> None:
    with door(tmp_path / "data") as new, opening(browser, new.url) as tabs:
        tab = tabs()
        tab.open("#/streams")
        expect(tab.page.get_by_role("main")).to_contain_text("There are no streams yet")
        tab.go("#/open")
        expect(tab.page.get_by_role("main")).to_contain_text("No transaction is open")
        expect(tab.page.get_by_role("status").filter(has_text="Live")).to_be_visible()
        tab.failures_expected = True
        new.process.terminate()
        expect(tab.page.get_by_role("status").filter(has_text="No connection")).to_be_visible()
        expect(tab.page.get_by_role("alert")).to_contain_text("does not answer")
        expect(tab.page.get_by_role("button", name="Try again")).to_be_visible()
