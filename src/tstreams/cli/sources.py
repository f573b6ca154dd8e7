"""Where each setting's value comes from.

A setting can be given in four places. The first of these that has it wins:

1. a flag (`--ledger-bytes 128MiB`),
2. the environment (`TSTREAMS_LEDGER_BYTES=128MiB`),
3. the file that `--config` or `TSTREAMS_CONFIG` names (`ledger_bytes = "128MiB"`),
4. the default.

Values that lost are checked all the same: a mistake that is hidden today bites when the flag goes.
"""

from __future__ import annotations

import difflib
import os
import ssl
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import (
    PREFIX,
    SETTINGS,
    TOKEN_FILE,
    Config,
    Setting,
    descriptions,
    expanded,
    is_local,
    joint_problems,
    show,
)
from ..errors import BadRequest

CONFIG_VARIABLE = f"{PREFIX}CONFIG"
OTHER_VARIABLES = (CONFIG_VARIABLE, f"{PREFIX}URL", f"{PREFIX}TLS_CA")
"""Known, but no settings of a server."""


def add_flags(parser: ArgumentParser) -> None:
    """A flag for every setting, and `--config`."""
    parser.add_argument("--config", metavar="FILE", help="a TOML file with settings")
    texts = descriptions()
    for name, setting in SETTINGS.items():
        text = texts[name].replace("%", "%%")
        text = text[:1].lower() + text[1:]
        if name == "token":
            text = "a file that holds the token which clients must show"
        elif setting.is_list:
            text += " May be given many times."
        if setting.is_switch:
            parser.add_argument(
                setting.flag, action="store_const", const=True, dest=setting.key, help=text
            )
            continue
        default = show(name, setting.default)
        parser.add_argument(
            setting.flag,
            action="append" if setting.is_list else "store",
            dest=setting.key,
            metavar=_metavar(setting),
            help=text if default == "(none)" else f"{text} [{default}]",
        )


def _metavar(setting: Setting) -> str:
    if setting.choices:
        return "|".join(setting.choices)
    if setting.range is not None:
        return {"bytes": "SIZE", "seconds": "TIME", "count": "N"}[setting.range.unit]
    names = {
        "data": "DIR",
        "listen": "ADDRESS",
        "http": "HOST:PORT|off",
        "http_hosts": "NAME",
        "cluster": "NAME",
        "zookeeper": "HOST:PORT,...",
        "advertise": "ADDRESS",
        "http_advertise": "URL",
    }
    return names.get(setting.name, "FILE")


def flags_of(arguments: Namespace) -> dict[str, Any]:
    """What `add_flags` has found on a command line."""
    keys = ("config", *(setting.key for setting in SETTINGS.values()))
    return {key: getattr(arguments, key) for key in keys}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the four places say together.

    `sources` says of each setting that has a value where it comes from. With `problems` there is no
    configuration; `warnings` are for people to read.
    """

    values: dict[str, Any]
    sources: dict[str, str]
    problems: list[str]
    warnings: list[str]

    def config(self) -> Config:
        """The configuration; `BadRequest` with all problems, one per line, if there are any."""
        if self.problems:
            raise BadRequest("\n".join(self.problems))
        return Config(**self.values)


def load(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Resolved:
    """Read the file that the flag `config` or the environment names, if any, and resolve everything.

    Looks at the certificate and the key, too.
    """
    named = flags.get("config") or environment.get(CONFIG_VARIABLE)
    try:
        path = expanded(named) if named else None
    except ValueError as error:
        raise BadRequest(str(error)) from None
    written, problem = _read_file(path) if path else ({}, None)
    found = resolve(flags, environment, written, path)
    found.problems[:0] = [problem] if problem else []
    found.problems.extend(tls_problems(found))
    return found


def _read_file(path: Path) -> tuple[dict[str, Any], str | None]:
    try:
        written, reason = parse_file(path.read_bytes())
    except OSError as error:
        written, reason = {}, error.strerror
    return written, f"the file {path} cannot be read: {reason}" if reason else None


def parse_file(data: bytes) -> tuple[dict[str, Any], str | None]:
    """What a file holds, or why it cannot be read."""
    try:
        return tomllib.loads(data.decode()), None
    except (ValueError, RecursionError) as error:  # also for numbers that have too many digits
        return {}, str(error)


def resolve(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    written: Mapping[str, Any] | None = None,
    path: Path | None = None,
) -> Resolved:
    """Put the places together; `written` is what the file at `path` holds.

    Flags that are None and variables that are empty count as not given. Relative paths in the file
    are relative to the file's folder, all others to the working directory.
    """
    found = Resolved({}, {}, [], [])
    for name, setting in SETTINGS.items():
        if not setting.required:
            found.values[name] = setting.default
            found.sources[name] = "default"
    here = Path()
    _take(found, written or {}, lambda key: f"{key} in {path}", path.parent if path else here)
    _take(found, _from_environment(environment, found), lambda key: PREFIX + key.upper(), here)
    given = {key: value for key, value in flags.items() if value is not None and key != "config"}
    _take(found, given, lambda key: "--" + key.replace("_", "-"), here)
    for name, setting in SETTINGS.items():
        if name not in found.values:
            found.problems.append(
                f"{name} is not set: give {setting.flag}, {setting.variable}, or {name} in the file"
            )
    found.problems.extend(joint_problems(found.values))
    found.warnings.extend(_warnings(found.values))
    return found


def _from_environment(environment: Mapping[str, str], found: Resolved) -> dict[str, str]:
    """The settings in the environment. One that is nearly a setting's name is probably a mistake;
    others are not ours to judge: Kubernetes makes variables such as TSTREAMS_SERVICE_HOST."""
    given = {}
    for variable, value in sorted(environment.items()):
        key = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if key in SETTINGS or key == TOKEN_FILE:
            if value:
                given[key] = value
        elif near := _nearest(key):
            meant = PREFIX + near.upper()
            found.warnings.append(f"{variable} is no setting: did you mean {meant}?")
    return given


def _nearest(key: str) -> str | None:
    near = difflib.get_close_matches(key, [*SETTINGS, TOKEN_FILE], n=1, cutoff=0.75)
    return near[0] if near else None


def _take(
    found: Resolved, given: Mapping[str, Any], called: Callable[[str], str], folder: Path
) -> None:
    """Lay what one place says over what the ones before it said."""
    if TOKEN_FILE in given and "token" in given:
        found.problems.append(f"{called('token')} and {called(TOKEN_FILE)}: give only one")
    for key, raw in given.items():
        name = "token" if key == TOKEN_FILE else key
        setting = SETTINGS.get(name)
        if setting is None:
            near = _nearest(key)
            hint = f": did you mean {near}?" if near else f", which are {', '.join(SETTINGS)}"
            found.problems.append(f"{called(key)} is none of the settings{hint}")
            continue
        try:
            value = read_token(raw, folder) if key == TOKEN_FILE else setting.read(raw, folder)
        except ValueError as error:
            problems = [str(error)]
        else:
            problems = setting.problems(value)
        found.problems.extend(f"{called(key)}: {problem}" for problem in problems)
        if not problems:
            found.values[name] = value
            found.sources[name] = called(key)
        else:
            found.values.setdefault(name, None)


def read_token(raw: object, folder: Path) -> str:
    """The token that a file holds. `ValueError` says why it cannot be had."""
    if not isinstance(raw, str | Path):
        raise ValueError(f"{raw!r} is no path")
    path = folder / expanded(str(raw))
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"the token file {path} cannot be read: {reason}") from None
    if not token:
        raise ValueError(f"the token file {path} is empty")
    return token


def tls_problems(found: Resolved) -> list[str]:
    """Whether the certificate and the key can be read, and fit."""
    names = [name for name in ("tls_certificate", "tls_key") if found.values.get(name)]
    problems = [
        f"{found.sources[name]}: {found.values[name]} cannot be read: is it there, and may you?"
        for name in names
        if not _is_readable(found.values[name])
    ]
    if problems or len(names) < 2:
        return problems
    certificate, key = (found.values[name] for name in names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        return [
            f"{certificate} and {key} are not a certificate and its key, both PEM and the key "
            f"without a passphrase: {error}"
        ]
    return []


def _is_readable(path: Path) -> bool:
    try:
        return os.access(path, os.R_OK) and not path.is_dir()
    except ValueError:  # a zero byte in it
        return False


def _warnings(values: Mapping[str, Any]) -> list[str]:
    """What is allowed, but is seldom meant."""
    found = []
    token, tls = values["token"], values["tls_certificate"]
    if not values["insecure"]:
        return []  # then it is not allowed
    for address in values["listen"]:
        if is_local(address):
            continue
        if not token:
            found.append(f"{address} can be reached from other machines, and there is no token")
        if address.startswith("zmq+"):
            found.append(f"{address} is not encrypted: TLS is for tcp:// addresses only")
        elif tls is None:
            found.append(f"{address} is not encrypted: set tls_certificate and tls_key")
    return found
