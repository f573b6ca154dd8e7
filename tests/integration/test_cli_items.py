"""The command line: what goes into a stream comes out of it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tstreams
from tstreams.cli.framing import LengthPrefixed, join_length_prefixed

from .cli import DEADLINE_S, Shell, serving, stream_of, url_in


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with serving(tmp_path_factory.mktemp("cli") / "data") as line:
        yield Shell(url_in(line))


@pytest.fixture
def stream(shell: Shell, request: pytest.FixtureRequest) -> str:
    """A stream of two partitions with the test's name."""
    name = re.sub(r"\W+", "-", request.node.name)
    shell.ok("stream", "create", name, "--partitions", "2")
    return name


def test_lines_come_back_as_they_were(shell: Shell, stream: str) -> None:
    data = b"one\n\nthree\r\n\xff\xfe\nfour"
    told = shell.ok("produce", stream, "--partition", "1", "--json", stdin=data).json
    assert (told["items"], told["transactions"], told["stream"]) == (5, 1, stream)
    assert shell.ok("consume", stream).out == data + b"\n"


def test_items_behind_their_lengths_may_hold_anything(
    shell: Shell, stream: str, tmp_path: Path
) -> None:
    items = [b"", b"\n", bytes(range(256)) * 300, b"x" * 3_000_000]
    file = tmp_path / "items"
    file.write_bytes(join_length_prefixed(items))
    form = ("--format", "length-prefixed")
    shell.ok("produce", stream, str(file), *form, "--partition", "0", "--compression", "lz4")
    assert LengthPrefixed().split(shell.ok("consume", stream, *form).out) == items


def test_a_batch_is_a_transaction_and_partitions_take_turns(shell: Shell, stream: str) -> None:
    data = b"".join(b"%d\n" % number for number in range(1000))
    told = shell.ok("produce", stream, "--batch", "100", stdin=data)
    assert re.match(r"wrote 1,000 items \(2.8 KiB\) in 10 transactions, \d\.\d s.*\n", told.text)
    rows = [json.loads(line) for line in shell.ok("consume", stream, "--json").text.splitlines()]
    assert sorted(int(row["item"]) for row in rows) == list(range(1000))
    assert len({row["id"] for row in rows}) == 10
    assert {row["partition"] for row in rows} == {0, 1}
    for partition in ("0", "1"):
        lines = shell.ok("consume", stream, "--partition", partition).text.split()
        assert lines == [row["item"] for row in rows if str(row["partition"]) == partition]
        assert len(lines) == 500


def test_all_input_can_be_one_transaction(shell: Shell, stream: str) -> None:
    data = b"x\n" * 5000
    told = shell.ok("produce", stream, "--transaction", "--batch", "10", "--json", stdin=data).json
    assert (told["items"], told["transactions"]) == (5000, 1)
    rows = [json.loads(line) for line in shell.ok("consume", stream, "--json").text.splitlines()]
    assert (len(rows), len({row["id"] for row in rows})) == (5000, 1)


def test_a_transaction_that_fails_leaves_nothing(shell: Shell, stream: str) -> None:
    words = ("produce", stream, "--transaction", "--format", "length-prefixed")
    done = shell(*words, stdin=join_length_prefixed([b"whole"]) + b"\x05")
    assert done.code == 1
    assert "the input ends within the item at byte 9" in done.err
    assert shell.ok("consume", stream).out == b""


def test_a_key_picks_the_partition_and_is_not_written(shell: Shell, stream: str) -> None:
    data = b"".join(b"user-%d\titem %d\n" % (number % 10, number) for number in range(100))
    shell.ok("produce", stream, "--key-separator", r"\t", stdin=data)
    rows = [json.loads(line) for line in shell.ok("consume", stream, "--json").text.splitlines()]
    by_user: dict[int, list[int]] = {}
    places: dict[int, set[int]] = {}
    for row in rows:
        number = int(row["item"].removeprefix("item "))
        by_user.setdefault(number % 10, []).append(number)
        places.setdefault(number % 10, set()).add(row["partition"])
    assert by_user == {user: list(range(user, 100, 10)) for user in range(10)}
    assert {len(partitions) for partitions in places.values()} == {1}
    assert set.union(*places.values()) == {0, 1}
    without = shell("produce", stream, "--key-separator", r"\t", stdin=b"no key\n")
    assert without.code == 1
    assert "item 1 has no" in without.err


def test_what_an_input_gave_is_sent_when_it_pauses(shell: Shell, stream: str) -> None:
    with (
        shell.started("consume", stream, "--follow") as reader,
        shell.started("produce", stream) as writer,
    ):
        pipe = stream_of(writer.stdin)
        for word in (b"one\n", b"two\n"):
            pipe.write(word)
            pipe.flush()
            assert stream_of(reader.stdout).readline() == word
        pipe.close()
        assert b"wrote 2 items" in stream_of(writer.stdout).read()
        reader.send_signal(signal.SIGINT)
    assert (reader.returncode, writer.returncode) == (130, 0)


def test_where_to_start_and_when_to_stop(shell: Shell, stream: str) -> None:
    shell.ok("produce", stream, "--partition", "0", "--batch", "2", stdin=b"a\nb\nc\nd\ne\nf\n")
    rows = [json.loads(line) for line in shell.ok("consume", stream, "--json").text.splitlines()]

    def read(*words: str) -> str:
        return shell.ok("consume", stream, *words).text.replace("\n", "")

    assert read("--limit", "3") == "abc"
    assert read("--from", "oldest") == "abcdef"
    assert read("--from", "newest") == ""
    assert read("--from", f"id:{rows[2]['id']}") == "cdef"
    assert read("--from", rows[0]["time"]) == "abcdef"
    assert read("--from", "15m") == "abcdef"
    assert read("--from", "2100-01-01") == ""
    wrong = shell("consume", stream, "--from", "yesterday")
    assert wrong.code == 2
    assert "'yesterday' is no point in a stream" in wrong.err


def test_a_named_reader_goes_on_where_it_was(shell: Shell, stream: str) -> None:
    shell.ok("produce", stream, "--partition", "0", "--batch", "2", stdin=b"a\nb\nc\nd\n")
    words = ("consume", stream, "--name", "r", "--checkpoint")
    assert shell.ok(*words, "--limit", "1").text == "a\nb\n"
    assert shell.ok(*words).text == "c\nd\n"
    assert shell.ok(*words).text == ""
    assert shell.ok("consume", stream, "--name", "r").text == "a\nb\nc\nd\n"
    without = shell("consume", stream, "--checkpoint")
    assert without.code == 2
    assert "--checkpoint needs --name" in without.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_reader_that_is_stopped_keeps_its_place(
    shell: Shell, stream: str, number: signal.Signals
) -> None:
    words = ("consume", stream, "--name", "r", "--checkpoint", "--follow")
    for line in (b"one\n", b"two\n"):
        with shell.started(*words) as reader:
            shell.ok("produce", stream, "--partition", "1", stdin=line)
            assert stream_of(reader.stdout).readline() == line
            reader.send_signal(number)
            rest, errors = reader.communicate(timeout=DEADLINE_S)
        assert (reader.returncode, rest, errors) == (128 + number, b"", b"")


def test_bytes_that_are_no_text_are_base64_in_json(shell: Shell, stream: str) -> None:
    shell.ok("produce", stream, "--partition", "0", stdin="ä\n".encode() + b"\xff\n")
    text, other = shell.ok("consume", stream, "--format", "json").text.splitlines()
    assert json.loads(text)["item"] == "ä"
    assert json.loads(other)["item_base64"] == "/w=="
    assert re.fullmatch(r"\d{4}-.*\.\d{3}Z", json.loads(text)["time"])


def test_rows_of_a_stream_with_a_schema_are_json(shell: Shell) -> None:
    schema = pa.schema([("user", pa.string()), ("blob", pa.binary())])
    table = pa.table({"user": ["ä", None], "blob": [b"\xff", b""]}, schema=schema)
    with tstreams.connect(shell.variables["TSTREAMS_URL"]) as client:
        client.create_stream("rows", schema=schema)
        with client.producer("rows") as producer:
            producer.instant(table)
    rows = [{"user": "ä", "blob": "/w=="}, {"user": None, "blob": ""}]
    lines = shell.ok("consume", "rows").text.splitlines()
    assert [json.loads(line) for line in lines] == rows
    lines = shell.ok("consume", "rows", "--json", "--limit", "1").text.splitlines()
    assert [json.loads(line)["row"] for line in lines] == rows[:1]
    assert "user: string, blob: binary" in shell.ok("stream", "show", "rows").text
    refused = shell("produce", "rows", stdin=b"x\n")
    assert refused.code == 1
    assert "has a schema" in refused.err


def test_a_reader_of_the_output_that_leaves_is_no_error(shell: Shell, stream: str) -> None:
    shell.ok("produce", stream, stdin=b"0123456789\n" * 100_000)
    with shell.started("consume", stream) as process:
        assert stream_of(process.stdout).readline() == b"0123456789\n"
        stream_of(process.stdout).close()
        assert stream_of(process.stderr).read() == b""
    assert process.returncode == 0


def test_a_stream_that_is_not_there(shell: Shell) -> None:
    for words in (("produce", "nowhere"), ("consume", "nowhere")):
        done = shell(*words, stdin=b"x\n")
        assert (done.code, done.out) == (1, b"")
        assert re.fullmatch(r"tstreams: .*nowhere.*\n", done.err)


def test_no_server_is_one_line_and_not_a_long_wait() -> None:
    done = Shell("tcp://127.0.0.1:1")("stream", "list", "--timeout", "0.5s")
    assert (done.code, done.out) == (1, b"")
    assert len(done.err.splitlines()) == 1
    assert "tcp://127.0.0.1:1" in done.err
