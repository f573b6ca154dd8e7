"""`tstreams config`: check a configuration, and print the defaults."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from textwrap import wrap
from typing import Any

from ..config import SETTINGS, descriptions, show, show_range
from . import output
from .output import FAILED, OK, remark, say, say_json, table
from .sources import Resolved, add_flags, flags_of, load

EXAMPLES = {
    "data": Path("data"),
    "tls_certificate": Path("server.pem"),
    "tls_key": Path("server.key"),
}
"""What the printed file has where there is no default."""


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams config",
        "Check a server's configuration, and print the defaults.",
        """
        tstreams config show-defaults > tstreams.toml
        tstreams config check tstreams.toml
        """,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = output.add_action(
        actions,
        "check",
        "show every setting, its value and where it comes from",
        "Show every setting, its value and where it comes from: a flag, the environment, the file, or "
        "the default; the first of these that has it wins. Reports everything that is wrong at once.",
        """
        tstreams config check tstreams.toml
        TSTREAMS_DATA=/srv/streams tstreams config check --ledger-bytes 128MiB
        """,
    )
    check.add_argument("file", nargs="?", metavar="FILE", help="the same as --config FILE")
    add_flags(check)
    output.add_action(
        actions,
        "show-defaults",
        "print a TOML file with every setting, what it is for and its default",
        "",
        "tstreams config show-defaults > tstreams.toml",
    )
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    if arguments.action == "check":
        return _check(arguments)
    if arguments.json:
        defaults = {name: one.default for name, one in SETTINGS.items() if not one.required}
        say_json({name: _plain(value) for name, value in defaults.items()})
    else:
        say(defaults_file())
    return OK


def _check(arguments: Namespace) -> int:
    flags = flags_of(arguments)
    flags["config"] = arguments.file or flags["config"]
    found = load(flags, os.environ)
    if arguments.json:
        say_json(_as_json(found))
        return FAILED if found.problems else OK
    rows = [
        (name, show(name, found.values.get(name)), found.sources.get(name, "")) for name in SETTINGS
    ]
    say(table(("SETTING", "VALUE", "FROM"), rows))
    for warning in found.warnings:
        remark(f"warning: {warning}")
    for problem in found.problems:
        remark(f"error: {problem}")
    return FAILED if found.problems else OK


def _as_json(found: Resolved) -> dict[str, Any]:
    values = {name: _plain(found.values.get(name)) for name in SETTINGS}
    values["token"] = show("token", values["token"]) if values["token"] else ""
    return {
        "ok": not found.problems,
        "settings": {
            name: {"value": value, "from": found.sources.get(name)}
            for name, value in values.items()
        },
        "problems": found.problems,
        "warnings": found.warnings,
    }


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def defaults_file() -> str:
    """A TOML file with every setting. Only `data` is not commented out: it has no default."""
    lines = ["# Settings of `tstreams serve`. What is commented out is the default."]
    for name, setting in SETTINGS.items():
        lines += ["", *wrap(descriptions()[name], 98, initial_indent="# ", subsequent_indent="# ")]
        if setting.range is not None:
            lines.append(f"# {show_range(setting.range)}")
        if setting.choices:
            lines.append(f"# {' | '.join(setting.choices)}")
        hidden = "" if setting.required else "#"
        lines.append(f"{hidden}{name} = {_toml(name)}")
    return "\n".join(lines)


def _toml(name: str) -> str:
    value = EXAMPLES.get(name, SETTINGS[name].default)
    if isinstance(value, tuple):
        return json.dumps(list(value))
    bounds = SETTINGS[name].range
    if bounds is not None and bounds.unit != "count" and value:
        return f'"{show(name, value)}"'
    return json.dumps(_plain(value))
