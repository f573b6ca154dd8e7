"""The command line for operators: what the front door knows, and what it may be told to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import tstreams
from tstreams import Client, InvalidState
from tstreams.cli.main import main

from .cli import Done, Shell, serving, url_in
from .discovery.doors import Door, door, wait_for
from .terminals import terminal

pytestmark = pytest.mark.xdist_group("cli-operating")


@dataclass
class Place:
    """A server, a client of it, and commands that know its front door."""

    door: Door
    client: Client

    def shell(self, *words: str) -> Done:
        """Run a command in this process: there are many of them, and starting takes longer than running."""
        return run(*words, "--url", self.door.url)

    def ok(self, *words: str) -> Done:
        done = self.shell(*words)
        assert (done.code, done.err) == (0, "")
        return done

    def rows(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok(*words, "--json").text.splitlines()]


def run(*words: str) -> Done:
    """Run a command in this process."""
    out, err = TextIOWrapper(BytesIO(), encoding="utf-8"), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as error:
            code = int(error.code or 0)
    out.flush()
    written = out.detach()
    assert isinstance(written, BytesIO)
    return Done(code, written.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("operating")
    with door(folder / "data") as made, tstreams.connect(made.tcp) as client:
        yield Place(made, client)


@pytest.fixture
def stream(place: Place, request: pytest.FixtureRequest) -> str:
    """A stream of two partitions, with a name that must be encoded in a URL."""
    name = "a/b " + re.sub(r"\W+", "-", request.node.name)
    place.client.create_stream(name, partitions=2, description="for a test")
    return name


def write(place: Place, stream: str, count: int, partition: int = 0) -> list[int]:
    """So many transactions of two items."""
    with place.client.producer(stream) as producer:
        found = [
            producer.instant([b'{"n": %d}' % n, b"\xff\x00\x01\x02"], partition=partition)
            for n in range(count)
        ]
    return [it for it in found if it is not None]


def read(place: Place, stream: str, name: str, count: int) -> None:
    """A consumer of this name reads so many of partition 0, and saves that."""
    with place.client.consumer(stream, name=name) as consumer:
        for _ in range(count):
            assert consumer.get(partition=0, timeout=30) is not None
        consumer.checkpoint()


# Streams.


def test_streams_with_their_sizes_and_lag(place: Place, stream: str) -> None:
    write(place, stream, 5)
    read(place, stream, "billing", 2)
    (row,) = place.rows("stream", "list", "--long", "--prefix", stream)
    assert row["size"] == {
        "transactions": 5,
        "items": 10,
        "bytes": row["size"]["bytes"],
        "exact": True,
    }
    assert (row["slowest"]["consumer"], row["slowest"]["lag"]["transactions"]) == ("billing", 3)
    shown = place.ok("stream", "list", "--long", "--prefix", stream).text.splitlines()
    assert len(shown) == 2
    assert re.search(r"2 +7d +5 +10 .* billing +3 +\d", shown[1])


def test_a_search_finds_names_by_what_they_hold(place: Place, stream: str) -> None:
    def found() -> list[str]:
        return [it["name"] for it in place.rows("stream", "list", "--search", "BY_WHAT_THEY")]

    assert wait_for(found) == [stream]
    assert place.shell("stream", "list", "--search", "x", "--after", "y").code == 2


def test_a_stream_shown_at_length(place: Place, stream: str) -> None:
    write(place, stream, 3, partition=1)
    write(place, stream, 1)
    read(place, stream, "billing", 1)
    shown = place.ok("stream", "show", stream, "--long").text
    assert "description    for a test" in shown
    assert "4 transactions, 8 items" in shown
    assert re.search(r"^ +1 +3 +6 ", shown, re.MULTILINE)
    assert "billing" in shown
    told = json.loads(place.ok("stream", "show", stream, "--long", "--json").text)
    assert [it["size"]["items"] for it in told["partition_list"]] == [2, 6]


# Transactions.


def test_transactions_of_all_partitions_in_the_order_of_their_ids(
    place: Place, stream: str
) -> None:
    ids = [write(place, stream, 1, partition)[0] for partition in (0, 1, 1, 0)]
    rows = place.rows("transaction", "list", stream)
    assert [(int(it["id"]), it["partition"]) for it in rows] == list(
        zip(ids, (0, 1, 1, 0), strict=True)
    )
    rows = place.rows("transaction", "list", stream, "--newest", "--limit", "2")
    assert [int(it["id"]) for it in rows] == [ids[3], ids[2]]
    rows = place.rows("transaction", "list", stream, "--partition", "1", "--from", f"id:{ids[2]}")
    assert [int(it["id"]) for it in rows] == [ids[2]]
    assert place.rows("transaction", "list", stream, "--from", "2100-01-01") == []
    done = place.shell("transaction", "list", stream, "--limit", "3")
    assert len(done.text.splitlines()) == 4
    assert "there are more transactions" in done.err


def test_a_transaction_and_its_items(place: Place, stream: str) -> None:
    (written,) = write(place, stream, 1, partition=1)
    shown = place.ok("transaction", "show", stream, str(written)).text
    assert f"transaction {written}" in shown
    assert re.search(r"partition +1\n", shown)
    assert re.search(r"state +checkpointed\n", shown)
    assert re.search(r"items +2 in 1 batch\n", shown)
    assert place.ok("transaction", "items", stream, str(written)).text.splitlines() == [
        '0  {"n": 0}',
        "1  ff000102",
    ]
    (second,) = place.rows("transaction", "items", stream, f"id:{written}", "--first", "1")
    assert (second["index"], second["view"], second["value"]) == (1, "hex", "ff000102")
    (first,) = place.rows("transaction", "items", stream, str(written), "--limit", "1")
    assert first["value"] == {"n": 0}
    assert place.shell("transaction", "items", stream, str(written), "--limit", "1").err != ""


def test_a_transaction_that_is_not_there(place: Place, stream: str) -> None:
    done = place.shell("transaction", "show", stream, "170000000000000001")
    assert done.code == 1
    assert "no transaction 170000000000000001" in done.err
    assert place.shell("transaction", "show", stream, "soon").code == 2
    done = place.shell("transaction", "list", "nowhere", "--json")
    assert json.loads(done.err)["error"] == "not_found"


def test_a_stuck_transaction_is_seen_and_cancelled(place: Place, stream: str) -> None:
    read(place, stream, "waiting", 0)
    with place.client.producer(stream, name="slow") as producer:
        stuck = producer.open(partition=0)
        stuck.send(b"never")
        write(place, stream, 1)
        (row,) = place.rows("transaction", "open", "--stream", stream)
        assert (int(row["id"]), row["owner"]["name"], row["first"]) == (stuck.id, "slow", True)
        assert "producer slow" in place.ok("transaction", "open").text
        assert place.ok("transaction", "cancel", str(stuck.id)).text == (
            f"cancelled transaction {stuck.id}\n"
        )
        with pytest.raises(InvalidState):
            stuck.checkpoint()
    assert place.rows("transaction", "open", "--stream", stream) == []
    done = place.shell("transaction", "cancel", str(stuck.id))
    assert (done.code, "is not open" in done.err) == (1, True)


# Consumers.


def test_consumers_and_how_far_behind_they_are(place: Place, stream: str) -> None:
    written = write(place, stream, 4)
    read(place, stream, "billing", 1)
    (row,) = place.rows("consumer", "list", stream)
    assert (row["name"], row["live"], row["lag"]["transactions"]) == ("billing", False, 3)
    assert any(it["stream"] == stream for it in place.rows("consumer", "list", "--all"))
    shown = place.ok("consumer", "show", stream, "billing").text
    assert "3 transactions, 6 items" in shown
    assert re.search(rf"^ +0 +{written[0]} .* 3 +6 ", shown, re.MULTILINE)
    done = place.shell("consumer", "show", stream, "nobody")
    assert (done.code, "has no consumer 'nobody'" in done.err) == (1, True)


def test_a_reset_is_foreseen_and_done(place: Place, stream: str) -> None:
    written = write(place, stream, 5)
    read(place, stream, "billing", 3)
    done = place.ok("consumer", "reset", stream, "billing", "--to", "oldest", "--dry-run")
    assert "reads 3 transactions, 6 items, again" in done.text
    (row,) = place.rows("consumer", "list", stream)
    assert row["lag"]["transactions"] == 2
    done = place.ok("consumer", "reset", stream, "billing", "--to", f"id:{written[1]}", "--yes")
    assert "done: " in done.text
    with place.client.consumer(stream, name="billing") as consumer:
        found = consumer.get(partition=0, timeout=30)
        assert found is not None
        assert found.id == written[1]
    done = place.ok("consumer", "reset", stream, "billing", "--to", "newest", "--json")
    assert done.json["applied"]
    (row,) = place.rows("consumer", "list", stream)
    assert row["lag"]["transactions"] == 0
    place.ok("consumer", "reset", stream, "billing", "--to", "1d", "--partition", "0")
    (row,) = place.rows("consumer", "list", stream)
    assert row["lag"]["transactions"] == 5


def test_a_reset_asks_on_a_terminal_and_no_means_no(place: Place, stream: str) -> None:
    write(place, stream, 3)
    read(place, stream, "billing", 2)
    words = ("consumer", "reset", stream, "billing", "--to", "oldest")
    with terminal(Shell(place.door.url), *words) as seen:
        seen.wait_for(r"reads 2 transactions, 4 items, again(?s:.*)Type yes: ")
        seen.strike("no\n")
        assert seen.ended() == 1
    (row,) = place.rows("consumer", "list", stream)
    assert row["lag"]["transactions"] == 1
    with terminal(Shell(place.door.url), *words) as seen:
        seen.wait_for(r"Type yes: ")
        seen.strike("yes\n")
        assert seen.ended() == 0
    (row,) = place.rows("consumer", "list", stream)
    assert row["lag"]["transactions"] == 3


def test_a_live_consumer_is_left_alone_unless_forced(place: Place, stream: str) -> None:
    write(place, stream, 2)
    with place.client.consumer(stream, name="live") as consumer:
        assert consumer.get(partition=0, timeout=30) is not None
        consumer.checkpoint()
        words = ("consumer", "reset", stream, "live", "--to", "oldest")
        done = place.shell(*words)
        assert (done.code, "is live" in done.err) == (1, True)
        assert place.shell("consumer", "forget", stream, "live").code == 1
        (row,) = place.rows("consumer", "list", stream)
        assert row["lag"]["transactions"] == 1
        place.ok(*words, "--force")
        consumer.get(partition=0, timeout=30)
        with pytest.raises(tstreams.Fenced):
            consumer.checkpoint()
    (row,) = place.rows("consumer", "list", stream)
    assert row["lag"]["transactions"] == 2


def test_a_consumer_is_forgotten(place: Place, stream: str) -> None:
    write(place, stream, 1)
    read(place, stream, "old", 1)
    assert place.rows("consumer", "list", stream) != []
    place.ok("consumer", "forget", stream, "old", "--yes")
    done = place.shell("consumer", "list", stream)
    assert (done.code, done.out) == (0, b"")
    assert "has no consumers" in done.err


# The node.


def test_the_node_its_health_its_settings_and_where_a_stream_is(place: Place, stream: str) -> None:
    (told,) = place.rows("node", "status")
    assert told["nodes"][0]["addresses"] == [place.door.tcp]
    assert told["statistics"]["available"]
    assert "state    working" in place.ok("node", "status").text
    assert place.ok("node", "health").text.startswith("ok: ")
    settings = {it["name"]: it["value"] for it in place.rows("node", "config", "--changed")}
    assert set(settings) == {"data", "listen", "http"}
    assert "ledger_bytes" in place.ok("node", "config").text
    (found,) = place.rows("node", "lookup", stream, "--partition", "1")
    assert found["ranges"][0]["addresses"] == [place.door.tcp]
    assert "0 to 1" in place.ok("node", "lookup", stream).text


def test_sessions_ledgers_and_jobs(place: Place, stream: str) -> None:
    write(place, stream, 1)
    place.client.job("nightly").commit(0, [])
    assert place.rows("node", "sessions")[0]["requests"] > 0
    ledgers = place.rows("node", "ledgers")
    assert [it["closed"] for it in ledgers][-1] is False
    assert "written to" in place.ok("node", "ledgers").text
    assert [(it["name"], it["last_step"]) for it in place.rows("job", "list")] == [("nightly", 0)]
    assert re.search(r"nightly +0 +\d", place.ok("job", "list").text)


# How they reach it.


def test_a_servers_own_address_leads_to_its_front_door(place: Place) -> None:
    assert run("node", "health", "--url", place.door.tcp).text.startswith("ok: ")


def test_a_server_without_a_front_door_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--http", "off") as line:
        done = Shell(url_in(line))("node", "health")
    assert (done.code, "has no front door" in done.err) == (1, True)


def test_nobody_there() -> None:
    done = run("node", "status", "--url", "http://127.0.0.1:1")
    assert done.code == 1
    assert "http://127.0.0.1:1 cannot be reached" in done.err
    done = run("node", "status", "--json", "--url", "http://127.0.0.1:1")
    assert json.loads(done.err)["error"] == "unavailable"
    assert run("node", "status", "--url", "http://").code == 1


def test_what_is_there_is_no_front_door(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("hello")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            done = run("node", "config", "--url", url)
            assert (done.code, "is it a tstreams server?" in done.err) == (1, True)
            (tmp_path / "v1").mkdir()
            (tmp_path / "v1" / "config").write_text("hello")
            done = run("node", "config", "--url", url)
            assert (done.code, "does not understand" in done.err) == (1, True)
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Tests are told by their results."""


def test_the_environment_names_the_server_and_its_proxy_is_not_used(place: Place) -> None:
    shell = Shell(place.door.url, http_proxy="http://127.0.0.1:1", HTTP_PROXY="http://127.0.0.1:1")
    assert shell.ok("node", "health").text.startswith("ok: ")
