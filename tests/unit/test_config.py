"""Settings: what they may be, where they come from, and that they are documented."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import moebius
import tstreams.limits
from tstreams.cli import config as config_command
from tstreams.cli.sources import Resolved, load, resolve
from tstreams.config import SETTINGS, Config, descriptions, http_address, show, show_range
from tstreams.errors import BadRequest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
OTHER: dict[str, tuple[str, Any]] = {
    "data": ("/srv/a", Path("/srv/a")),
    "listen": ("tcp://127.0.0.1:1,ipc:///x", ("tcp://127.0.0.1:1", "ipc:///x")),
    "http": ("localhost:80", "localhost:80"),
    "http_hosts": ("a.example,b", ("a.example", "b")),
    "token": ("secret", "secret"),
    "tls_certificate": ("/srv/cert", Path("/srv/cert")),
    "tls_key": ("/srv/key", Path("/srv/key")),
    "insecure": ("yes", True),
    "log_level": ("DEBUG", "debug"),
    "log_format": ("json", "json"),
    "fsync": ("Never", "never"),
    "ledger_bytes": ("128MiB", 128 * 1024 * 1024),
    "ledger_age_s": ("2.5", 2.5),
    "payload_cache_bytes": ("1 GiB", 1024**3),
    "disk_reserve_bytes": ("4096", 4096),
    "clients_max": ("7", 7),
    "shards": ("4", 4),
    "cluster": ("main", "main"),
    "zookeeper": ("zk1:2181,zk2:2181/here", "zk1:2181,zk2:2181/here"),
    "zookeeper_session_s": ("10s", 10),
    "advertise": ("tcp://n1:7070,zmq+tcp://n1:1", ("tcp://n1:7070", "zmq+tcp://n1:1")),
    "http_advertise": ("http://n1:7080", "http://n1:7080"),
    "shard_ports": ("7071-7079", "7071-7079"),
}
"""For each setting another value than its default: as text, and as what it means."""
LOSES = {
    "data": "/srv/b",
    "listen": "ipc:///y",
    "http": "off",
    "http_hosts": "*",
    "tls_certificate": "/srv/other",
    "tls_key": "/srv/other",
    "insecure": "0",
    "log_level": "error",
    "log_format": "text",
    "fsync": "always",
    "ledger_bytes": "1MiB",
    "ledger_age_s": "9s",
    "payload_cache_bytes": "9",
    "disk_reserve_bytes": "9",
    "clients_max": "9",
    "shards": "9",
    "cluster": "other",
    "zookeeper": "zk9:1",
    "zookeeper_session_s": "9s",
    "advertise": "tcp://n9:1",
    "http_advertise": "http://n9:1",
    "shard_ports": "9000-9999",
}
"""And a third value of each that has a flag of its own name."""
TLS = {"tls_certificate": "/srv/cert", "tls_key": "/srv/key"}


def test_the_defaults() -> None:
    config = resolve({"data": "here"}, {}).config()
    assert config == Config(data=Path("here"))
    assert config.listen == ("tcp://127.0.0.1:7070",)
    assert config.clients_max == moebius.Limits().clients_max


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_can_be_given_in_the_environment_and_in_a_file(name: str) -> None:
    text, meaning = OTHER[name]
    variable = "TSTREAMS_" + name.upper()
    in_environment = resolve({}, {variable: text})
    assert (in_environment.values[name], in_environment.sources[name]) == (meaning, variable)
    in_file = resolve({}, {}, {name: text}, Path("/etc/x.toml"))
    assert in_file.values[name] == meaning
    assert in_file.sources[name] == f"{name} in /etc/x.toml"


@pytest.mark.parametrize("name", LOSES)
def test_the_flag_wins_over_the_environment_and_that_over_the_file(name: str) -> None:
    text, meaning = OTHER[name]
    variable, loses = "TSTREAMS_" + name.upper(), LOSES[name]
    in_environment = resolve({}, {variable: text}, {name: loses}, Path("x.toml"))
    assert (in_environment.values[name], in_environment.sources[name]) == (meaning, variable)
    flagged = resolve({name: text}, {variable: loses}, {name: loses}, Path("x.toml"))
    assert flagged.values[name] == meaning
    assert flagged.sources[name] == "--" + name.replace("_", "-")


def test_an_empty_variable_and_a_flag_that_was_not_given_count_for_nothing() -> None:
    found = resolve({"data": None}, {"TSTREAMS_DATA": "", "TSTREAMS_TOKEN": ""}, {"data": "d"})
    assert found.values["data"] == Path("d")
    assert found.sources["token"] == "default"


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("ledger_bytes", 1048576, 1048576),
        ("ledger_bytes", "1MiB", 1048576),
        ("ledger_bytes", "0.5 MiB", 524288),
        ("ledger_age_s", "10m", 600),
        ("ledger_age_s", "2h", 7200),
        ("ledger_age_s", 1.5, 1.5),
        ("listen", ["ipc://a", "ipc://b"], ("ipc://a", "ipc://b")),
        ("listen", "ipc://a", ("ipc://a",)),
    ],
)
def test_how_values_may_be_written(name: str, raw: object, value: Any) -> None:
    assert resolve({}, {}, {"data": "d", name: raw}).config() == Config(
        data=Path("d"), **{name: value}
    )


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("ledger_bytes", "64MB", "is no number: write digits and, if you like, one of B, KiB"),
        ("ledger_bytes", "1KiB", "must be 64KiB to 16GiB, not 1KiB"),
        ("ledger_bytes", "1000.5", "is not whole"),
        ("ledger_bytes", True, "True is no number"),
        ("ledger_bytes", [1], "is no number"),
        ("ledger_age_s", 0, "must be 1s to 7d, not 0"),
        ("clients_max", "1k", "'1k' is no number: write digits"),
        ("clients_max", 0, "must be 1 to 1000000, not 0"),
        ("clients_max", -1, "must be 1 to 1000000, not -1"),
        ("log_level", "loud", "must be one of debug, info, warning, error, not 'loud'"),
        ("log_format", 7, "7 is not text: put it in quotes"),
        ("data", 7, "7 is not text"),
        ("listen", [], "must be a tuple of 1 to 64 addresses"),
        ("listen", 7070, "is no list of texts"),
        ("listen", "127.0.0.1:7070", "must begin with one of tcp://"),
        ("listen", "tcp://127.0.0.1", "must look like tcp://host:port"),
        ("listen", ["ipc://a", "ipc://a"], "ipc://a is there more than once"),
        ("token", "two\nlines", "must be one line of printable text"),
        ("token", "x" * 5000, "must not be longer than 4096 bytes"),
    ],
)
def test_what_is_refused_and_how(name: str, raw: object, says: str) -> None:
    found = resolve({}, {}, {"data": "d", name: raw}, Path("x.toml"))
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{name} in x.toml: ")
    assert says in found.problems[0]
    with pytest.raises(BadRequest, match=re.escape(says)):
        found.config()


def test_all_problems_are_found_at_once_also_where_a_flag_hides_them() -> None:
    found = resolve(
        {"clients_max": "many"},
        {"TSTREAMS_LOG_LEVEL": "loud"},
        {"ledger_byte": 1, "log_level": "quiet", "tls_key": "k"},
        Path("x.toml"),
    )
    assert [problem.partition(":")[0] for problem in found.problems] == [
        "ledger_byte in x.toml is none of the settings",
        "log_level in x.toml",
        "TSTREAMS_LOG_LEVEL",
        "--clients-max",
        "data is not set",
        "tls_certificate is missing",
    ]
    with pytest.raises(BadRequest) as raised:
        found.config()
    assert raised.value.message.splitlines() == found.problems


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("ledger_byte", "did you mean ledger_bytes?"),
        ("Data", "did you mean data?"),
        ("colour", "which are data, listen, http"),
        ("config", "which are data, listen"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(key: str, says: str) -> None:
    [problem] = resolve({"data": "d"}, {}, {key: "x"}, Path("x.toml")).problems
    assert problem.startswith(f"{key} in x.toml is none of the settings")
    assert says in problem


def test_an_unknown_variable_warns_only_if_it_is_nearly_a_setting() -> None:
    kubernetes = {
        "TSTREAMS_PORT": "tcp://10.0.0.1:7070",
        "TSTREAMS_SERVICE_HOST": "10.0.0.1",
        "TSTREAMS_PORT_7070_TCP_ADDR": "10.0.0.1",
        "TSTREAMS_URL": "tcp://10.0.0.1:7070",
    }
    assert resolve({"data": "d"}, kubernetes).warnings == []
    found = resolve({"data": "d"}, {"TSTREAMS_LEDGER_BYTE": "1"})
    assert found.warnings == [
        "TSTREAMS_LEDGER_BYTE is no setting: did you mean TSTREAMS_LEDGER_BYTES?"
    ]
    assert found.problems == []


def test_a_token_can_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    flags = {"data": "d", "token_file": str(tmp_path / "token")}
    found = resolve(flags, {"TSTREAMS_TOKEN": "loses"})
    assert found.config().token == "secret"
    assert found.sources["token"] == "--token-file"
    by_file = resolve({"data": "d"}, {}, {"token_file": "token"}, tmp_path / "x.toml")
    assert by_file.config().token == "secret"
    both = resolve({"data": "d"}, {"TSTREAMS_TOKEN": "a", "TSTREAMS_TOKEN_FILE": "b"})
    assert both.problems[0] == "TSTREAMS_TOKEN and TSTREAMS_TOKEN_FILE: give only one"


def test_a_token_file_that_is_not_there_or_empty_is_an_error(tmp_path: Path) -> None:
    missing = resolve({"data": "d", "token_file": str(tmp_path / "none")}, {})
    assert "cannot be read: No such file" in missing.problems[0]
    (tmp_path / "empty").write_text("\n")
    empty = resolve({"data": "d", "token_file": str(tmp_path / "empty")}, {})
    assert empty.problems == [f"--token-file: the token file {tmp_path / 'empty'} is empty"]


def test_a_token_is_never_shown() -> None:
    assert "secret" not in repr(Config(data=Path("d"), token="secret"))
    assert show("token", "secret") == "(hidden)"


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "tstreams.toml"
    file.write_text('data = "streams"\ntls_certificate = "/abs/cert"\ntls_key = "key"\n')
    values = load({"config": str(file)}, {}).values
    assert values["data"] == tmp_path / "streams"
    assert values["tls_certificate"] == Path("/abs/cert")
    assert values["tls_key"] == tmp_path / "key"
    assert load({"config": str(file), "data": "x"}, {}).values["data"] == Path("x")


def test_the_flag_names_the_file_before_the_environment_does(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('data = "/one"')
    two.write_text('data = "/two"')
    variable = {"TSTREAMS_CONFIG": str(one)}
    assert load({}, variable).config().data == Path("/one")
    assert load({"config": str(two)}, variable).config().data == Path("/two")


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), (b"data = \n", "line 1"), (b'data = "\xff"', "utf-8")],
    ids=["missing", "no value", "not UTF-8"],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "x.toml"
    if content is not None:
        file.write_bytes(content)
    [problem] = load({"config": str(file), "data": "d"}, {}).problems
    assert problem.startswith(f"the file {file} cannot be read: ")
    assert says in problem


def test_what_is_allowed_but_seldom_meant() -> None:
    def warnings(**written: object) -> list[str]:
        found = resolve({"data": "d", "insecure": True}, {}, written)
        assert found.problems == []
        return found.warnings

    assert warnings(listen=["tcp://127.0.0.1:1", "tcp://[::1]:1", "ipc://x"]) == []
    assert warnings(listen="tcp://0.0.0.0:1", token="t", **TLS) == []
    assert warnings(listen="tcp://0.0.0.0:1") == [
        "tcp://0.0.0.0:1 can be reached from other machines, and there is no token",
        "tcp://0.0.0.0:1 is not encrypted: set tls_certificate and tls_key",
    ]
    assert warnings(listen="zmq+tcp://10.0.0.1:1", token="t", **TLS) == [
        "zmq+tcp://10.0.0.1:1 is not encrypted: TLS is for tcp:// addresses only"
    ]


@pytest.mark.parametrize(
    "address",
    [
        "tcp://0.0.0.0:1",
        "tcp://[::]:1",
        "tcp://10.0.0.1:1",
        "tcp://example.org:1",
        "tcp://127.evil.example:1",
        "zmq+tcp://192.168.0.1:1",
    ],
)
def test_what_others_can_reach_is_refused_unless_it_is_meant(address: str) -> None:
    def found(**written: object) -> Resolved:
        return resolve({"data": "d"}, {}, {"listen": [address], **written})

    says = f"listen: {address} can be reached from other machines: "
    [problem] = found().problems
    assert problem.startswith(says)
    assert "say --insecure" in problem
    assert found().warnings == []
    assert found(token="t").problems == found(**TLS).problems == [problem]
    guarded = found(token="t", **TLS).problems
    assert guarded == ([problem] if address.startswith("zmq+") else [])
    assert found(insecure=True).problems == []
    assert resolve({"data": "d", "insecure": True}, {}, {"listen": address}).problems == []
    with pytest.raises(BadRequest, match=re.escape(says)):
        Config(data=Path("d"), listen=(address,))
    assert Config(data=Path("d"), listen=(address,), insecure=True).listen == (address,)


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "tcp://[::1]:1", "tcp://localhost:1", "ipc://x"],
)
def test_what_only_this_machine_can_reach_is_not_refused(address: str) -> None:
    assert resolve({"data": "d"}, {}, {"listen": [address, f"zmq+{address}"]}).problems == []


def test_the_front_door_is_for_this_machine_unless_it_is_meant() -> None:
    def problems(http: object, **written: object) -> list[str]:
        return resolve({"data": "d"}, {}, {"http": http, **written}).problems

    for http in ("127.0.0.1:1", "[::1]:0", "localhost:7080", "off"):
        assert problems(http) == []
    for http in ("0.0.0.0:7080", "[::]:7080", "example.org:80"):
        says = f"http: {http} can be reached from other machines"
        assert problems(http)[0].startswith(says)
        assert problems(http, token="t", **TLS)[0].startswith(says)  # HTTP has neither yet
        assert problems(http, insecure=True) == []
    for http in ("7080", "localhost", ":7080", "localhost:x", "localhost:99999", "a:1/b", "u@a:1"):
        assert "must look like 127.0.0.1:7080, or be off" in problems(http)[0]
    assert "is not text" in problems(7080)[0]
    assert http_address("[::1]:80") == ("::1", 80)
    assert http_address("off") is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"data": "text"}, "data: must be a pathlib.Path"),
        ({"listen": "tcp://127.0.0.1:1"}, "listen: must be a tuple"),
        ({"ledger_bytes": 1}, "ledger_bytes: must be 64KiB to 16GiB, not 1B"),
        ({"clients_max": "1"}, "clients_max: must be a number, not '1'"),
        ({"log_level": "INFO"}, "log_level: must be one of"),
        ({"insecure": "yes"}, "insecure: must be true or false, not 'yes'"),
        ({"http": None}, "http: must look like"),
        ({"tls_key": Path("k")}, "tls_certificate is missing: a certificate and its key"),
        ({"cluster": "a b", "zookeeper": "z:1"}, "cluster: 'a b' cannot name a cluster"),
        ({"cluster": "c", "zookeeper": "z"}, "zookeeper: must look like zk1:2181,zk2:2181"),
        ({"cluster": "c"}, "zookeeper is missing: it says where the cluster is known"),
        (
            {"cluster": "c", "zookeeper": "z:1", "shards": 2},
            "was said when the cluster was created",
        ),
        ({"zookeeper": "z:1"}, "zookeeper: only for a node of a cluster, and cluster is not set"),
        ({"http_advertise": "n1:7080"}, "http_advertise: must look like http://node1:7080"),
    ],
)
def test_a_configuration_made_in_python_is_checked_too(given: Any, says: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(says)):
        Config(**{"data": Path("d"), **given})


# Documentation.


def test_every_setting_is_described() -> None:
    assert list(descriptions()) == list(SETTINGS)
    assert all(text.endswith(".") for text in descriptions().values())


def test_the_printed_file_is_the_defaults_and_can_be_read_with_every_line_active() -> None:
    text = config_command.defaults_file()
    assert resolve({}, {}, tomllib.loads(text)).config() == Config(data=Path("data"))
    active = tomllib.loads(re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE))
    assert list(active) == list(SETTINGS)
    tls: dict[str, Any] = {name: Path(active[name]) for name in TLS}
    assert resolve({}, {}, active).config() == Config(data=Path("data"), **tls)


def test_the_page_has_the_printed_file_and_a_row_for_every_setting() -> None:
    page = (DOCS / "configuration.md").read_text()
    assert f"```toml\n{config_command.defaults_file()}\n```" in page
    for name, setting in SETTINGS.items():
        allowed = show_range(setting.range) if setting.range else " ".join(setting.choices)
        default = "required" if setting.required else show(name, setting.default)
        flag, variable = f"`{setting.flag}`", f"`{setting.variable}`"
        assert f"| `{name}` | {flag} | {variable} | {default} | {allowed} |" in page


def test_every_limit_says_its_reason_and_the_page_lists_the_module() -> None:
    body = ast.parse(inspect.getsource(tstreams.limits)).body
    reasons = {
        target.targets[0].id: below
        for target, below in pairwise([*body, ast.Pass()])
        if isinstance(target, ast.Assign) and isinstance(target.targets[0], ast.Name)
    }
    units = {"KIB", "MIB", "GIB"}
    without = [
        name
        for name, below in reasons.items()
        if name not in units
        and not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant))
    ]
    assert len(reasons) > len(units)
    assert without == []
    page = (DOCS / "configuration.md").read_text()
    assert "::: tstreams.limits\n" in page
