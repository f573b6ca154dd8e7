"""The command line: the server, its configuration, streams, help."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import tstreams
from tstreams.cli.main import COMMANDS, main

from .cli import DEADLINE_S, TSTREAMS, Shell, serving, stream_of, url_in


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


# The server.


def test_serve_says_where_and_writes_it_into_a_file_and_keeps_its_data(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with serving(tmp_path / "data", "--ready-file", str(ready)) as line:
        url = url_in(line)
        where = f"data in {tmp_path / 'data'}"
        assert line == f"tstreams {tstreams.__version__} serving on {url}, {where}\n"
        while not ready.exists():
            time.sleep(0.01)
        assert ready.read_text() == f"{url}\n"
        Shell(url).ok("stream", "create", "kept")
    assert not ready.exists()
    with serving(tmp_path / "data", "--json") as line:
        told = json.loads(line)
        assert told["version"] == tstreams.__version__
        assert told["data"] == str(tmp_path / "data")
        assert Shell(told["addresses"][0]).ok("stream", "list", "--json").json["name"] == "kept"


def test_a_second_server_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path):
        second = Shell()("serve", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:0")
    assert (second.code, second.out) == (1, b"")
    assert f"{tmp_path} is in use by another server" in second.err
    assert "Traceback" not in second.err


def test_ctrl_c_stops_the_server_like_sigterm(tmp_path: Path) -> None:
    words = ["serve", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:0", "--http", "off"]
    with Shell().started(*words) as process:
        assert stream_of(process.stdout).readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def test_a_server_runs_with_its_standard_files_closed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    words = f"serve --data {tmp_path / 'data'} --listen tcp://127.0.0.1:0 --ready-file {ready}"
    words += " --http 127.0.0.1:0"
    command = f"exec {' '.join(TSTREAMS)} {words} <&- >&- 2>&-"
    with subprocess.Popen(["sh", "-c", command], env=Shell().variables) as process:
        try:
            while not ready.exists():
                assert process.poll() is None
                time.sleep(0.01)
            tcp, http = ready.read_text().split()
            Shell(tcp).ok("stream", "create", "kept")
            with urllib.request.urlopen(f"{http}/v1/streams/kept", timeout=DEADLINE_S) as answer:
                assert answer.status == 200
        finally:
            process.terminate()
    assert process.returncode == 0
    Shell().ok("verify", str(tmp_path / "data"))


def test_serve_refuses_a_bad_configuration_with_all_that_is_wrong(tmp_path: Path) -> None:
    done = Shell(TSTREAMS_LEDGER_BYTES="tiny")("serve", "--log-level", "loud")
    assert (done.code, done.out) == (1, b"")
    assert [line.split()[1] for line in done.err.splitlines()] == [
        "TSTREAMS_LEDGER_BYTES:",
        "--log-level:",
        "data",
    ]


def test_serve_says_which_address_it_could_not_have(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as line:
        taken = url_in(line)
        done = Shell()("serve", "--data", str(tmp_path / "two"), "--listen", taken)
    assert done.code == 1
    assert f"cannot serve on {taken}" in done.err
    assert "Traceback" not in done.err


def test_logs_are_json_if_asked_for(tmp_path: Path) -> None:
    words = ["--log-format", "json", "--listen", "tcp://127.0.0.1:0", "--http", "off"]
    with Shell().started("serve", "--data", str(tmp_path), *words) as process:
        assert stream_of(process.stdout).readline()
        process.terminate()
        _, logs = process.communicate(timeout=DEADLINE_S)
    lines = [json.loads(line) for line in logs.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert "moebius" in {line["logger"] for line in lines}


def test_a_token_is_wanted_and_can_be_given_in_a_file_or_the_environment(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    with serving(tmp_path / "data", "--token-file", str(secret)) as line:
        url = url_in(line)
        refused = Shell(url)("stream", "list")
        assert (refused.code, refused.out) == (1, b"")
        assert len(refused.err.splitlines()) == 1
        Shell(url, TSTREAMS_TOKEN="open sesame").ok("stream", "create", "clicks")
        Shell(url, TSTREAMS_TOKEN_FILE=str(secret)).ok("stream", "show", "clicks")
        Shell(url, TSTREAMS_TOKEN="x").ok("stream", "show", "clicks", "--token-file", str(secret))


# Configuration.


def test_config_check_shows_where_each_value_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('data = "/srv/streams"\ntoken = "secret"\n')
    shell = Shell(TSTREAMS_LOG_LEVEL="debug")
    done = shell.ok("config", "check", str(file), "--clients-max", "7")
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.text.splitlines()}
    assert rows["data"] == ["/srv/streams", f"data in {file}"]
    assert rows["token"] == ["(hidden)", f"token in {file}"]
    assert rows["log_level"] == ["debug", "TSTREAMS_LOG_LEVEL"]
    assert rows["clients_max"] == ["7", "--clients-max"]
    assert rows["ledger_bytes"] == ["64MiB", "default"]
    told = shell.ok("config", "check", "--config", str(file), "--json").json
    assert told["ok"] is True
    assert told["settings"]["ledger_bytes"] == {"value": 64 * 1024 * 1024, "from": "default"}
    assert "secret" not in json.dumps(told)


def test_config_check_fails_with_all_problems(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('ledger_byte = 1\nlog_level = "loud"\n')
    done = Shell()("config", "check", str(file))
    assert done.code == 1
    assert [line.split()[:2] for line in done.err.splitlines()] == [
        ["error:", "ledger_byte"],
        ["error:", "log_level"],
        ["error:", "data"],
    ]
    told = Shell()("config", "check", str(file), "--json")
    assert (told.code, told.json["ok"], len(told.json["problems"])) == (1, False, 3)


def test_the_printed_defaults_pass_the_check(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(Shell().ok("config", "show-defaults").out)
    Shell().ok("config", "check", str(file))
    assert Shell().ok("config", "show-defaults", "--json").json["ledger_bytes"] == 64 * 1024 * 1024


# Streams.


def test_the_life_of_a_stream(shell: Shell) -> None:
    made = shell.ok(
        *("stream", "create", "life", "--partitions", "3", "--ttl", "12h", "--description", "d e")
    )
    assert made.text.splitlines()[0] == "created stream life"
    assert re.search(r"partitions +3\n +ttl +12h\n +description +d e\n", made.text)
    shown = shell.ok("stream", "show", "life", "--json").json
    expected = {"name": "life", "partitions": 3, "ttl_s": 43200.0, "description": "d e"}
    assert expected.items() <= shown.items()
    altered = shell.ok("stream", "alter", "life", "--ttl", "1h", "--json").json
    assert (altered["ttl_s"], altered["description"]) == (3600.0, "d e")
    shell.ok("stream", "alter", "life", "--description", "")
    assert shell.ok("stream", "show", "life", "--json").json["description"] == ""
    assert shell.ok("stream", "delete", "life").text == "deleted stream life\n"
    gone = shell("stream", "show", "life")
    assert (gone.code, gone.out) == (1, b"")
    assert re.fullmatch(r"tstreams: .*life.*\n", gone.err)


def test_list_is_in_order_and_can_be_narrowed(shell: Shell) -> None:
    for name in ("list-b", "list-a", "list-ö", "other"):
        shell.ok("stream", "create", name, "--description", "日本")
    lines = shell.ok("stream", "list", "--prefix", "list-").text.splitlines()
    assert lines[0].split() == ["NAME", "PARTITIONS", "TTL", "DESCRIPTION"]
    assert [line.split()[0] for line in lines[1:]] == ["list-a", "list-b", "list-ö"]
    told = shell.ok("stream", "list", "--prefix", "list-", "--limit", "2", "--json").text
    assert [json.loads(line)["name"] for line in told.splitlines()] == ["list-a", "list-b"]
    rest = shell.ok("stream", "list", "--prefix", "list-", "--after", "list-a", "--json").text
    assert [json.loads(line)["name"] for line in rest.splitlines()] == ["list-b", "list-ö"]
    none = shell("stream", "list", "--prefix", "nothing")
    assert (none.code, none.out) == (0, b"")
    assert "there are no streams whose name begins with 'nothing'" in none.err


def test_a_person_at_a_terminal_is_asked_before_data_is_dropped(shell: Shell, stream: str) -> None:
    for answer, code, says in ((b"no\n", 1, b"nothing was done"), (b"yes\n", 0, b"")):
        controller, terminal = os.openpty()
        os.write(controller, answer)
        done = subprocess.run(
            [*TSTREAMS, "stream", "delete", stream],
            stdin=terminal,
            capture_output=True,
            env=shell.variables,
            timeout=DEADLINE_S,
            check=False,
        )
        os.close(terminal)
        os.close(controller)
        assert (done.returncode, says in done.stderr) == (code, True)
        assert f"delete the stream {stream!r} with all it holds?".encode() in done.stderr
    assert shell("stream", "show", stream).code == 1


def test_a_terminal_that_lacks_letters_gets_them_escaped(shell: Shell) -> None:
    shell.ok("stream", "create", "日本")
    ascii_only = Shell(shell.variables["TSTREAMS_URL"], PYTHONIOENCODING="ascii")
    assert r"\u65e5\u672c" in ascii_only.ok("stream", "show", "日本").text


def test_schemas_are_written_as_they_are_shown(shell: Shell) -> None:
    name = "with-a-schema"
    columns = "card: string not null, cents: int64"
    made = shell("stream", "create", name, "--schema", columns)
    assert made.code == 0
    assert f"schema       {columns}" in made.out.decode()
    columns += ", at: timestamp[us, tz=UTC], price: decimal128(12, 2)"
    assert shell("stream", "alter", name, "--schema", columns).code == 0
    assert f"schema       {columns}" in shell("stream", "show", name).out.decode()
    fewer = shell("stream", "alter", name, "--schema", "card: string not null")
    assert fewer.code == 1
    assert "column 'cents' is missing" in fewer.err
    for wrong, words in (
        ("card", "no column `name: type` at 'card'"),
        ("card: strange", "column 'card': Arrow has no simple type 'strange'"),
        ("", "at least one column"),
    ):
        done = shell("stream", "create", "never", "--schema", wrong)
        assert done.code == 2
        assert words in done.err


def test_errors_are_json_if_asked_for(shell: Shell, stream: str) -> None:
    done = shell("stream", "create", stream, "--json")
    assert done.code == 1
    assert json.loads(done.err)["error"] == "already_exists"
    nothing = shell("stream", "alter", stream)
    assert nothing.code == 2
    assert "nothing to change: give --ttl, --description or --schema" in nothing.err


def test_purge_drops_what_is_before_a_point(shell: Shell, stream: str) -> None:
    shell.ok("produce", stream, "--partition", "0", "--batch", "1", stdin=b"a\nb\nc\n")
    told = shell.ok("consume", stream, "--json").text.splitlines()
    second = json.loads(told[1])["id"]
    assert shell.ok("stream", "purge", stream, "--before", f"id:{second}", "--yes", "--json").json
    assert shell.ok("consume", stream).text == "b\nc\n"


# Help.


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as raised:
        main([*words, "--help"])
    assert raised.value.code == 0
    return capsys.readouterr().out


def test_every_command_and_action_has_help_with_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    top = help_of(capsys)
    pages: list[tuple[str, ...]] = [(command,) for command in COMMANDS]
    actions = {
        "config": ("check", "show-defaults"),
        "engine": ("list", "install", "check"),
        "stream": ("create", "show", "list", "alter", "purge", "delete"),
        "transaction": ("list", "show", "items", "open", "cancel"),
        "consumer": ("list", "show", "reset", "forget"),
        "job": ("list",),
        "node": ("status", "health", "sessions", "ledgers", "config", "lookup"),
        "cluster": (
            *("create", "up", "down", "restart", "status"),
            *("add", "drain", "remove", "move", "rebalance"),
        ),
    }
    pages += [(command, action) for command, names in actions.items() for action in names]
    for page in pages:
        assert page[0] in top
        text = help_of(capsys, *page)
        assert "examples:\n  " in text
        assert f"tstreams {' '.join(page)}" in text
        assert (page[0] in actions and len(page) == 1) or "--json" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "commands:"),
        (("sreve",), "there is no command 'sreve': did you mean 'serve'?"),
        (("dance",), "there are serve, stream"),
        (("stream",), "required: ACTION"),
        (("serve", "--dat", "x"), "unrecognized arguments: --dat x"),
        (("produce", "s", "--partition", "1", "--key-separator", ","), "not allowed with"),
    ],
)
def test_a_command_line_that_makes_no_sense(words: tuple[str, ...], says: str) -> None:
    done = Shell()(*words)
    assert (done.code, done.out) == (2, b"")
    assert says in done.err


def test_the_version() -> None:
    assert Shell().ok("--version").text == f"tstreams {tstreams.__version__}\n"
