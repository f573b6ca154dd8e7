"""What an operator does, from the first look to the cure, in light and in dark."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Locator, expect

import tstreams
from tests.integration.discovery.doors import wait_for
from tstreams import Offset

from .browser import Opener, Theme, troubles_of
from .conftest import STREAMS
from .load import ORDERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),  # the first of them makes the streams
    pytest.mark.xdist_group("console"),
]
THEMES = pytest.mark.parametrize("theme", ["light", "dark"])
FREE = 3
"""The partition that the load leaves alone."""


def moves(chart: Locator, points: int = 2) -> None:
    """Wait until the line of a chart has so many points, then until it has changed, and changed again."""
    line = chart.locator("path.first")
    expect(line).to_have_attribute("d", re.compile("(?:L[^L]+)" * (points - 1)))
    for _ in range(2):
        before = line.get_attribute("d")
        wait_for(lambda before=before: line.get_attribute("d") != before)  # type: ignore[misc]


@THEMES
def test_find_a_stream_among_all_and_watch_it(tabs: Opener, theme: Theme) -> None:
    tab = tabs(theme)
    tab.open()
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("SHOP/ord")
    link = tab.page.get_by_role("table", name="Streams", exact=True).get_by_role(
        "link", name=ORDERS
    )
    expect(link).to_be_visible()
    expect(tab.page.get_by_text("1 name has “SHOP/ord” in it")).to_be_visible()
    tab.shoot(f"search-{theme}")
    tab.page.keyboard.press("ArrowDown")
    expect(link).to_be_focused()
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("heading", name=ORDERS, level=1)).to_be_visible()
    tab.settle()
    moves(tab.page.locator(".chart-card").first)
    tab.page.go_back()
    expect(link).to_be_visible()


@THEMES
def test_browse_to_a_time_and_read_a_message(
    tabs: Opener, ts: tstreams.Client, theme: Theme
) -> None:
    said = f"the parcel of {theme} ümlaut <b>is not bold</b>"
    with ts.producer(ORDERS, name=f"marker-{theme}", partitions={FREE}) as producer:
        marked = producer.instant([said.encode(), b'{"nested": {"list": [1, 2.5, null]}}'])
        assert marked is not None
        later = [producer.instant([b"later"]) for _ in range(3)]
    when = datetime.fromtimestamp(marked // 100_000 / 1000, UTC)
    tab = tabs(theme)
    tab.open(f"#/streams/{ORDERS.replace('/', '%2F')}?partition={FREE}")
    jump = tab.page.get_by_label("Jump to a time or an id")
    jump.fill(when.isoformat(timespec="milliseconds"))
    jump.press("Enter")
    items = tab.page.get_by_role("region", name="Items")
    expect(items).to_contain_text(said)
    expect(items).to_contain_text('"list": [ 1, 2.5, null ]')
    tab.page.get_by_role("button", name="Hex", exact=True).click()
    expect(items).to_contain_text("74 68 65 20 70 61 72 63")
    expect(items).to_contain_text("the parcel of")
    tab.page.get_by_role("button", name=f"Transaction {later[-1]}").click()
    tab.page.get_by_role("button", name="Text", exact=True).click()
    expect(items).to_contain_text("later")
    other = tabs(theme)
    other.open("#" + tab.page.url.partition("#")[2])
    expect(other.page.get_by_role("region", name="Items")).to_contain_text("later")


@THEMES
def test_the_messages_of_a_busy_stream(tabs: Opener, theme: Theme) -> None:
    tab = tabs(theme)
    tab.open(f"#/streams/{ORDERS.replace('/', '%2F')}")
    expect(tab.page.get_by_role("region", name="Items")).to_contain_text('"customer"')
    expect(tab.page.locator(".timeline .bar-mark").first).to_be_visible()
    moves(tab.page.locator(".chart-card").first, points=10 if theme == "light" else 2)
    expect(tab.page.get_by_role("button", name="Show new")).to_be_visible()
    tab.shoot(f"stream-{theme}")
    strip = tab.page.get_by_role("group", name="Timeline of transactions")
    says = tab.page.get_by_text(re.compile(r"^\d+ transactions? (and more )?in "))
    before = says.inner_text()
    strip.focus()
    tab.page.keyboard.press("+")
    expect(says).not_to_have_text(before)
    picked = tab.page.locator("tbody tr.selected").inner_text()
    tab.page.locator(".timeline .bar-mark").nth(3).click()
    expect(tab.page.locator("tbody tr.selected")).not_to_have_text(picked)


@THEMES
def test_reset_an_offset(tabs: Opener, ts: tstreams.Client, theme: Theme) -> None:
    stream, name = f"history/{theme}", "nightly report"
    ts.create_stream(stream, partitions=3)
    with ts.producer(stream, name="p") as producer:
        ids = [producer.instant([b"x", b"y"], partition=at % 3) for at in range(15)]
    with ts.consumer(stream, name=name, start=Offset.oldest()) as consumer:
        assert [txn.id for txn in consumer.between(0, 0, ids[-1])] == ids[::3]
        for at in range(15):
            assert consumer.get(partition=at % 3, timeout=20) is not None
        consumer.checkpoint()
    tab = tabs(theme)
    tab.open(f"#/streams/{stream.replace('/', '%2F')}?tab=consumers")
    tab.page.get_by_role("link", name=name).click()
    tab.page.get_by_role("button", name="Reset offset").click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("15 transactions again")
    rows = dialog.get_by_role("row").filter(has_text="reads 5 transactions (10 items) again")
    expect(rows).to_have_count(3)
    _, before, after, _ = rows.first.get_by_role("cell").all_inner_texts()
    assert after < before, "times are told exactly: these are milliseconds apart"
    tab.shoot(f"reset-{theme}")
    assert troubles_of(tab) == []
    dialog.get_by_role("button", name="Reset offset").click()
    expect(dialog).to_be_hidden()
    expect(tab.page.locator(".toast")).to_contain_text("15 transactions again")
    behind = tab.page.locator("dl.figures div", has_text="Transactions behind")
    expect(behind.locator("dd")).to_have_text("15")
    with ts.consumer(stream, name=name) as consumer:
        first = consumer.get(partition=0, timeout=20)
        assert first is not None
        assert first.id == ids[0]


def read_on(consumer: tstreams.Consumer) -> None:
    while consumer.get(partition=0, timeout=20) is not None:
        consumer.checkpoint()


@THEMES
def test_a_live_consumer_is_reset_only_by_force(
    tabs: Opener, ts: tstreams.Client, theme: Theme
) -> None:
    stream = f"held/{theme}"
    ts.create_stream(stream, partitions=1)
    with ts.producer(stream, name="p") as producer:
        producer.instant([b"x"], partition=0)
    with ts.consumer(stream, name="holder", start=Offset.oldest()) as consumer:
        assert consumer.get(partition=0, timeout=20) is not None
        consumer.checkpoint()
        tab = tabs(theme)
        tab.open(f"#/streams/{stream.replace('/', '%2F')}/consumers/holder")
        tab.page.get_by_role("button", name="Reset offset").click()
        dialog = tab.page.get_by_role("dialog")
        button = dialog.get_by_role("button", name="Reset offset")
        expect(dialog).to_contain_text("Somebody reads under this name now")
        expect(button).to_be_disabled()
        dialog.get_by_role("checkbox").check()
        button.click()
        expect(dialog).to_be_hidden()
        with ts.producer(stream, name="p") as producer:
            producer.instant([b"y"], partition=0)
        with pytest.raises(tstreams.Fenced):
            read_on(consumer)


@THEMES
def test_cancel_a_stuck_transaction(tabs: Opener, ts: tstreams.Client, theme: Theme) -> None:
    stream = f"stuck/{theme}"
    ts.create_stream(stream, partitions=1)
    slow = ts.producer(stream, name="slow", transaction_ttl=3600.0)
    quick = ts.producer(stream, name="quick")
    reader = ts.consumer(stream, name="waiting", start=Offset.oldest())
    quick.instant([b"before"], partition=0)
    assert reader.get(partition=0, timeout=20) is not None
    reader.checkpoint()
    stuck = slow.open(partition=0)
    stuck.send(b"never to be read")
    after = quick.instant([b"after"], partition=0)
    tab = tabs(theme)
    tab.open()
    tab.page.get_by_role("navigation", name="Pages").get_by_role(
        "link", name="Open transactions"
    ).click()
    tab.settle()
    row = tab.page.get_by_role("row").filter(has_text=stream)
    expect(row).to_contain_text("slow")
    expect(row).to_contain_text("waiting")
    row.get_by_role("button", name="Cancel").click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("These can go on: waiting.")
    tab.shoot(f"cancel-{theme}")
    assert troubles_of(tab) == []
    dialog.get_by_role("button", name="Cancel transaction").click()
    expect(dialog).to_be_hidden()
    expect(row).to_be_hidden()
    txn = reader.get(partition=0, timeout=20)
    assert txn is not None
    assert txn.id == after
    with pytest.raises(tstreams.Error, match="operator"):
        stuck.checkpoint()
    for agent in (slow, quick, reader):
        agent.close()


@THEMES
def test_the_overview_is_live(tabs: Opener, theme: Theme) -> None:
    tab = tabs(theme)
    tab.open()
    expect(tab.page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    streams = tab.page.locator("dl.figures div", has_text="Streams").locator("dd")
    expect(streams).to_contain_text(re.compile(r"\d"))
    wait_for(lambda: int(streams.inner_text().replace(",", "")) >= STREAMS)
    for title in ("Transactions", "Items", "Bytes", "Commit latency"):
        card = tab.page.locator(".chart-card").filter(
            has=tab.page.get_by_role("heading", name=title, exact=True)
        )
        moves(card)
    busiest = tab.page.get_by_role("table", name="Busiest streams")
    expect(busiest.get_by_role("link", name=ORDERS)).to_be_visible()
    tab.shoot(f"overview-{theme}")


def test_a_tab_that_is_troubled_is_noticed(tabs: Opener) -> None:
    tab = tabs()
    tab.open()

    def noticed(text: str) -> bool:
        tab.page.wait_for_timeout(20)  # in which the browser's events arrive
        return any(text in trouble for trouble in tab.troubles)

    tab.page.evaluate("fetch('http://127.0.0.2:1/elsewhere').catch(() => {})")
    wait_for(lambda: noticed("elsewhere"))
    wait_for(lambda: noticed("Content Security Policy"))
    tab.page.evaluate("setTimeout(() => { throw new Error('on purpose'); })")
    wait_for(lambda: noticed("on purpose"))
    tab.troubles.clear()
