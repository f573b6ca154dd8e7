"""Parts of the front door that need no server: searching, showing, matching, guarding, estimating."""

from __future__ import annotations

import pytest

from tstreams.cli.front_door import reachable
from tstreams.client.locating import choose
from tstreams.discovery.catalogue import Catalogue
from tstreams.discovery.matching import Matcher
from tstreams.discovery.problems import Refused
from tstreams.discovery.routes import ROUTES
from tstreams.discovery.statistics import quantile
from tstreams.discovery.viewing import is_text, show_item, show_items


def test_a_catalogue_finds_words_in_names_and_not_across_them() -> None:
    catalogue = Catalogue()
    for number, name in enumerate(["Abc", "bcd", "ÄÖß", "abcabc", "x"]):
        catalogue.add(number + 10, name)
    assert catalogue.find("BC", 0, 10) == ([0, 1, 3], None)
    assert catalogue.find("bc", 0, 2) == ([0, 1], 3)
    assert catalogue.find("bc", 3, 2) == ([3], None)
    assert catalogue.find("c\nb", 0, 10) == ([], None)
    assert catalogue.find("äö", 0, 10) == ([2], None)
    assert catalogue.find("x", 99, 10) == ([], None)
    assert catalogue.name(2) == "ÄÖß"
    assert catalogue.number(3) == 13
    catalogue.bury(1)
    assert catalogue.find("bc", 0, 10) == ([0, 3], None)
    assert (catalogue.count("bc"), len(catalogue)) == (2, 4)


@pytest.mark.parametrize(
    ("data", "view", "shown", "value"),
    [
        (b"7", "auto", "text", "7"),
        (b"7", "json", "json", 7),
        (b"[1]", "auto", "json", [1]),
        (b"[NaN]", "auto", "text", "[NaN]"),
        (b'["\\ud800"]', "auto", "text", '["\\ud800"]'),
        (b"[" * 20_000, "auto", "text", "[" * 16_384),
        (b"\xc3", "auto", "hex", "c3"),
        (b"\x1b[0m", "auto", "hex", "1b5b306d"),
        (b"\xff\xfe\x00\x01", "text", "text", "\ufffd\ufffd\x00\x01"),
    ],
)
def test_items_are_shown(data: bytes, view: str, shown: str, value: object) -> None:
    item = show_item(0, data, view)  # type: ignore[arg-type]
    assert (item.view, item.value) == (shown, value)


def test_a_page_of_items_has_its_room() -> None:
    shown = show_items([b"x" * 20_000] * 100, 5, "auto")
    assert [it.index for it in shown] == list(range(5, 5 + 64))
    assert is_text(b"halb" + "ü".encode()[:1], cut=True)
    assert not is_text(b"halb" + "ü".encode()[:1])
    assert show_item(0, b"\xff\x00", "auto").view == "hex"
    assert not is_text(b"\xff" * 5)


def test_paths_are_matched_as_they_were_sent() -> None:
    matcher = Matcher(ROUTES)
    found = matcher.match("GET", b"/v1/streams/a%2Fb%20c/partitions/7/transactions/12")
    assert found is not None
    assert found[0].name == "transaction"
    assert found[1] == {"stream": "a/b c", "partition": 7, "transaction": "12"}
    assert matcher.match("GET", b"/v1/streams/a/b") is None
    assert matcher.match("GET", b"//v1/streams") is None
    opened = matcher.match("GET", b"/v1/transactions/open")
    assert opened is not None
    assert opened[0].name == "open_transactions"
    for path in (b"/v1/streams/%", b"/v1/streams/%g0", b"/v1/streams/%ff"):
        with pytest.raises(Refused, match="percent-encoded"):
            matcher.match("GET", path)


def test_quantiles_are_estimated_within_their_bucket() -> None:
    assert quantile([1.0, 2.0], [0, 0, 0], 0.5) == 0
    assert quantile([1.0, 2.0], [10, 0, 0], 0.5) == 0.5
    assert quantile([1.0, 2.0], [1, 1, 0], 1.0) == 2.0
    assert quantile([1.0, 2.0], [0, 0, 5], 0.99) == 2.0


def test_the_best_address_is_chosen() -> None:
    assert (
        reachable(["zmq+tcp://127.0.0.1:1", "ipc:///x", "tcp://0.0.0.0:2"]) == "tcp://127.0.0.1:2"
    )
    assert reachable(["zmq+tcp://[::]:1"]) == "zmq+tcp://[::1]:1"
    assert reachable(["zmq+tcp://127.0.0.1:1", "ipc:///x"]) == "ipc:///x"
    assert choose(["ipc:///x", "tcp://0.0.0.0:2"], "db.example") == "tcp://db.example:2"
    assert choose(["tcp://[::]:2"], "fe80::1") == "tcp://[fe80::1]:2"
    assert choose(["ipc:///x"], "db.example") is None
    assert choose(["ipc:///x"], "localhost") == "ipc:///x"
    assert choose(["zmq+tcp://10.0.0.1:2"], "db.example") == "zmq+tcp://10.0.0.1:2"
