"""What a server can be told: every setting, its bounds, and how its value is written.

Where values come from, and which wins, is in `cli/sources.py`.
"""

from __future__ import annotations

import ast
import inspect
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from .cluster_settings import CLUSTER_CHECKS, cluster_problems
from .errors import BadRequest
from .limits import KIB, MIB, PAYLOAD_CACHE_BYTES, SHARDS_MAX

GIB = 1024 * MIB
TIB = 1024 * GIB
PREFIX = "TSTREAMS_"
TOKEN_FILE = "token_file"  # noqa: S105 - the name of a setting
TOKEN_BYTES_MAX = 4 * KIB
"""A token travels in the first header of a connection, which may have 8 KiB."""
HTTP_OFF = "off"
LISTEN_MAX = 64
"""Addresses of one server. Each is a socket that stays open."""

_UNITS: dict[str, dict[str, int]] = {
    "bytes": {"": 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB},
    "seconds": {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400},
    "count": {"": 1},
}
NUMBER_MAX = 2**63
"""Beyond all bounds of settings; also keeps out what is no number at all."""
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True, slots=True)
class Range:
    """The bounds of a number, both allowed, and what it counts."""

    low: int
    high: int
    unit: Literal["bytes", "seconds", "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of a server, checked: `BadRequest` names everything that is wrong."""

    data: Path
    """The folder that holds everything. It is made if it does not exist. One server at a time."""

    listen: tuple[str, ...] = ("tcp://127.0.0.1:7070",)
    """The addresses to serve on: tcp://, ipc://, zmq+tcp:// or zmq+ipc://. Port 0 lets the system choose."""

    http: str = "127.0.0.1:7080"
    """Where the front door is served: lookup, administration, metrics and the console, over HTTP, as host:port. Port 0 lets the system choose; off serves none."""

    http_hosts: tuple[str, ...] = ()
    """Names of hosts by which HTTP may be asked for, beside addresses and localhost; * allows any. A name that is not allowed is refused, because pages of strangers could lead it here."""

    token: str = field(default="", repr=False)
    """What clients must show to be let in; empty lets in everyone. There is no flag for it, because flags are seen by everyone on the machine: use token_file, which names a file that holds it."""

    tls_certificate: Path | None = None
    """The certificate chain (PEM) for tcp:// addresses. Needs tls_key."""

    tls_key: Path | None = None
    """The certificate's private key (PEM)."""

    insecure: bool = False
    """Whether to serve on addresses that other machines can reach although not everything there is encrypted and asks for a token. Only where the network itself keeps strangers out."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important messages that are logged, to standard error."""

    log_format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object per line for programs."""

    fsync: Literal["always", "never"] = "always"
    """Whether what is acknowledged is on disk. With never a crash of the server loses nothing, but a power failure or a crash of the machine loses what was acknowledged last, and may leave a folder that the server refuses to open. For tests, and for data that can be made again."""

    ledger_bytes: Annotated[int, Range(64 * KIB, 16 * GIB, "bytes")] = 64 * MIB
    """When a ledger is closed and the next begun. Smaller ones give dead data back sooner, larger ones are fewer files: a terabyte is 16 000 of the default size."""

    ledger_age_s: Annotated[float, Range(1, 7 * 86_400, "seconds")] = 600
    """A ledger that has anything in it is closed after this, however small it is, so that what died in it can be removed."""

    payload_cache_bytes: Annotated[int, Range(0, TIB, "bytes")] = PAYLOAD_CACHE_BYTES
    """Item batches kept in memory after they were written: readers that keep up never touch the disk."""

    disk_reserve_bytes: Annotated[int, Range(0, TIB, "bytes")] = 0
    """Room on the disk that is never used: with less than this the server only reads. 0 lets the server choose."""

    clients_max: Annotated[int, Range(1, 1_000_000, "count")] = 20_000
    """Connections at a time. Each needs a file descriptor: see `ulimit -n`."""

    shards: Annotated[int, Range(1, SHARDS_MAX, "count")] = 1
    """Into how many shards the partitions are spread. Each has a log and an index of its own, and with several each has a process of its own. It is settled when the data folder is made, and cannot be changed. A node of a cluster has as many as the cluster."""

    cluster: str = ""
    """The name of the cluster that this server is a node of; empty: it stands alone. `tstreams cluster create` makes one. Needs zookeeper."""

    zookeeper: str = ""
    """Where ZooKeeper answers, which knows the cluster: host:port, with commas between several. A path behind them is where its entries begin."""

    zookeeper_session_s: Annotated[float, Range(1, 60, "seconds")] = 4
    """After so long without a word from a node the others lead what it led. Shorter ones take over sooner, and more often without need."""

    advertise: tuple[str, ...] = ()
    """The addresses by which clients and other nodes reach this node of a cluster, if they are not those that it listens on: behind 0.0.0.0 or a port that is mapped."""

    http_advertise: str = ""
    """The URL by which others reach the front door of this node of a cluster, if it is not the one that it listens on."""

    shard_ports: str = ""
    """With several shards: the ports on which their processes listen, as first-last. Clients connect to these too. One is needed for each shard and each tcp:// or zmq+tcp:// address in listen. Empty lets the system choose."""

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in SETTINGS}
        found = [
            f"{name}: {problem}"
            for name, setting in SETTINGS.items()
            for problem in setting.problems(values[name])
        ]
        if found := found or joint_problems(values):
            raise BadRequest("; ".join(found))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: how it is called in each place, and what it may be."""

    name: str
    type: Any
    default: Any
    range: Range | None
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        """Its flag; the token has none of its own."""
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()

    @property
    def key(self) -> str:
        """What may be given on the command line: the name, but for the token the file that holds it."""
        return TOKEN_FILE if self.name == "token" else self.name

    @property
    def is_path(self) -> bool:
        """Whether it names a file or a folder."""
        return Path in (self.type, *get_args(self.type))

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.type is bool

    @property
    def is_list(self) -> bool:
        """Whether it may be given many times."""
        return bool(self.type == tuple[str, ...])

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING

    def read(self, raw: object, folder: Path) -> Any:
        """A value as it was written, with its type. `ValueError` says what is wrong."""
        if self.range is not None:
            return read_number(raw, self.range.unit)
        if self.is_list:
            return _read_list(raw)
        if self.is_switch:
            return _read_switch(raw)
        if not isinstance(raw, str):
            raise ValueError(f"{raw!r} is not text: put it in quotes")
        if self.is_path:
            return folder / expanded(raw)
        return raw.lower() if self.choices else raw

    def problems(self, value: Any) -> list[str]:
        """What is wrong with a value that has its type."""
        if self.choices and value not in self.choices:
            return [f"must be one of {', '.join(self.choices)}, not {value!r}"]
        if self.range is not None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                return [f"must be a number, not {value!r}"]
            if not self.range.low <= value <= self.range.high:
                given = show_number(value, self.range.unit)
                return [f"must be {show_range(self.range)}, not {given}"]
        if self.is_path and not isinstance(value, Path) and (self.required or value is not None):
            return [f"must be a pathlib.Path, not {value!r}"]
        if self.is_switch and not isinstance(value, bool):
            return [f"must be true or false, not {value!r}"]
        if self.name == "listen":
            return _address_problems(value)
        if self.name == "advertise":
            return _address_problems(value) if value else []
        if self.name in CLUSTER_CHECKS:
            return CLUSTER_CHECKS[self.name](value)
        if self.name == "http":
            return _http_problems(value)
        if self.name == "http_hosts":
            return _host_problems(value)
        if self.name == "token":
            return _token_problems(value)
        if self.name == "shard_ports":
            return _port_problems(value)
        return []


def expanded(raw: str) -> Path:
    """A path, with `~` put into words. `ValueError` if nobody has that home."""
    try:
        return Path(raw).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{raw!r} is no path: {error}") from None


def read_number(raw: object, unit: str) -> float | int:
    """A number as people write it: 7, "64MiB", "10m". `ValueError` says what is wrong."""
    units = _UNITS[unit]
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        number = raw
    else:
        found = _NUMBER.fullmatch(raw) if isinstance(raw, str) else None
        if found is None or found[2] not in units:
            known = [name for name in units if name]
            as_in = f" and, if you like, one of {', '.join(known)}" if known else ""
            raise ValueError(f"{raw!r} is no number: write digits{as_in}")
        number = float(found[1]) * units[found[2]]
    if not -NUMBER_MAX <= number <= NUMBER_MAX:
        raise ValueError(
            f"{str(raw)[:50] if isinstance(raw, str | float) else 'this'} is out of bounds"
        )
    if unit != "seconds" and number != int(number):
        raise ValueError(f"{raw!r} is not whole")
    return int(number) if number == int(number) else number


def _read_list(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if isinstance(raw, list | tuple) and all(isinstance(part, str) for part in raw):
        return tuple(raw)
    raise ValueError(f"{raw!r} is no list of texts: write for example ['tcp://127.0.0.1:7070']")


_SWITCH = {"true": True, "yes": True, "on": True, "1": True}
_SWITCH |= {"false": False, "no": False, "off": False, "0": False}


def _read_switch(raw: object) -> bool:
    known = _SWITCH.get(raw.strip().lower()) if isinstance(raw, str) else raw
    if not isinstance(known, bool):
        raise ValueError(f"{raw!r} is neither true nor false")
    return known


def http_address(text: str) -> tuple[str, int] | None:
    """The host and the port that the setting `http` names; None: it is off. `ValueError` if it is neither."""
    if text == HTTP_OFF:
        return None
    wanted = f"must look like 127.0.0.1:7080, or be {HTTP_OFF}, not {text!r}"
    try:
        url = urlsplit(f"//{text}")
        host, port = url.hostname, url.port
    except ValueError:
        raise ValueError(wanted) from None
    if not host or port is None or url.netloc != text or "@" in text:
        raise ValueError(wanted)
    return host, port


def _http_problems(value: Any) -> list[str]:
    try:
        http_address(value if isinstance(value, str) else repr(value))
    except ValueError as error:
        return [str(error)]
    return []


_HOST_NAME = re.compile(r"\*|[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")


def _host_problems(value: Any) -> list[str]:
    if not isinstance(value, tuple) or len(value) > LISTEN_MAX:
        return [f"must be a tuple of at most {LISTEN_MAX} names, not {value!r}"]
    return [
        f"{name!r} is no name of a host: write it without http:// and port"
        for name in value
        if not isinstance(name, str) or not _HOST_NAME.fullmatch(name)
    ]


def _address_problems(value: Any) -> list[str]:
    # Bring an event loop along: not before they are needed.
    from moebius.addresses import parse_address
    from moebius.errors import BadRequest as BadAddress

    if not isinstance(value, tuple) or not 0 < len(value) <= LISTEN_MAX:
        return [f"must be a tuple of 1 to {LISTEN_MAX} addresses, not {value!r}"]
    found = []
    for text in value:
        try:
            parse_address(text)
        except BadAddress as error:
            found.append(str(error))
    twice = {text for text in value if value.count(text) > 1 and not text.endswith(":0")}
    return found + [f"{text} is there more than once" for text in sorted(twice)]


def _token_problems(value: Any) -> list[str]:
    if not isinstance(value, str) or not value.isprintable():
        return ["must be one line of printable text"]
    if len(value.encode(errors="replace")) > TOKEN_BYTES_MAX:
        return [f"must not be longer than {TOKEN_BYTES_MAX} bytes"]
    return []


def ports_of(text: str) -> range:
    """The ports that the setting `shard_ports` names. `ValueError` if it names none."""
    if not text:
        return range(0)
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65_536):
        raise ValueError(f"must look like 7071-7078, not {text!r}")
    return range(int(first), int(last) + 1)


def _port_problems(value: Any) -> list[str]:
    try:
        ports_of(value if isinstance(value, str) else repr(value))
    except ValueError as error:
        return [str(error)]
    return []


def joint_problems(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with settings that are right by themselves."""
    if (values["tls_certificate"] is None) != (values["tls_key"] is None):
        missing = "tls_key" if values["tls_key"] is None else "tls_certificate"
        return [f"{missing} is missing: a certificate and its key go together"]
    if found := cluster_problems(values):
        return found
    ports = len(ports_of(values["shard_ports"]))
    needed = values["shards"] * sum("tcp://" in it for it in values["listen"])
    if values["shards"] > 1 and 0 < ports < needed:
        return [f"shard_ports: {values['shard_ports']} are {ports} ports, {needed} are needed"]
    if values["insecure"]:
        return []
    guarded = bool(values["token"]) and values["tls_certificate"] is not None
    found = exposed_addresses(values["listen"], guarded)
    http = http_address(values["http"])
    if http is not None and not is_loopback(http[0]):
        found.append(f"http: {values['http']}{_EXPOSED}, and has neither a token nor TLS: {_HOW}")
    return found


_EXPOSED = " can be reached from other machines"
_HOW = "serve on 127.0.0.1, or say --insecure (insecure = true) if the network keeps strangers out"


def exposed_addresses(listen: Iterable[str], guarded: bool) -> list[str]:
    """What is wrong with addresses that other machines can reach, unless that is meant. `guarded`: there are
    a token and a certificate, which help where TLS is spoken."""
    found = []
    for address in listen:
        if is_local(address) or (guarded and not address.startswith("zmq+")):
            continue
        how = "set token, tls_certificate and tls_key, or "
        if address.startswith("zmq+"):
            how = "it has no TLS, so "
        found.append(f"listen: {address}{_EXPOSED}: {how}{_HOW}")
    return found


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address."""
    if "tcp://" not in address:
        return True
    return is_loopback(urlsplit(address).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself. Of names only localhost is: where others lead, nobody knows."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _setting(name: str, hint: Any, default: Any) -> Setting:
    bounds = next((part for part in get_args(hint)[1:] if isinstance(part, Range)), None)
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    return Setting(name, hint, default, bounds, choices)


_hints = get_type_hints(Config, include_extras=True)
SETTINGS: dict[str, Setting] = {
    part.name: _setting(part.name, _hints[part.name], part.default) for part in fields(Config)
}
"""Every setting by its name, in the order of `Config`."""


# For people: what a setting is for, and values as they would write them.


@cache
def descriptions() -> dict[str, str]:
    """What each setting is for: the text below it in `Config`. Empty where the source is not there."""
    try:
        source = inspect.getsource(Config)
    except OSError:
        return dict.fromkeys(SETTINGS, "")
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for target, below in pairwise(definition.body):
        match target, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                found[name] = " ".join(str(text).split())
    return found


def show(name: str, value: Any) -> str:
    """A value as it may be written into the environment; a token only as being there."""
    bounds = SETTINGS[name].range
    if value is MISSING or value is None or value in ("", ()):
        return "(none)"
    if name == "token":
        return "(hidden)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return show_number(value, bounds.unit) if bounds else str(value)


def show_number(value: float, unit: str) -> str:
    """A number with the greatest unit of which it is a whole multiple."""
    units = {name: size for name, size in _UNITS[unit].items() if name}
    whole = [name for name, size in units.items() if value and value % size == 0]
    if whole:
        return f"{int(value) // units[whole[-1]]}{whole[-1]}"
    return f"{value:g}s" if unit == "seconds" and value else f"{int(value)}"


def show_range(bounds: Range) -> str:
    """Bounds, in words."""
    low, high = (show_number(number, bounds.unit) for number in (bounds.low, bounds.high))
    return f"{low} to {high}"
