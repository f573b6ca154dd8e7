"""The five ways in which DB-API drivers write parameters.

Statements here are written with names, `where reader = :reader`, and translated for the driver.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from ..errors import BadRequest

Parameters: TypeAlias = tuple[Any, ...] | dict[str, Any]

STYLES = ("qmark", "numeric", "named", "format", "pyformat")
_NAME = re.compile(r":([a-z_]+)")


def check_style(style: str) -> str:
    """One of the five."""
    if style not in STYLES:
        raise BadRequest(f"a paramstyle is one of {', '.join(STYLES)}, not {style!r}")
    return style


def bound(statement: str, values: Mapping[str, Any], style: str) -> tuple[str, Parameters]:
    """A statement and its parameters, as the driver wants them."""
    text, names = _translated(statement, style)
    if style in ("named", "pyformat"):
        return text, {name: values[name] for name in names}
    return text, tuple(values[name] for name in names)


@lru_cache
def _translated(statement: str, style: str) -> tuple[str, tuple[str, ...]]:
    names = tuple(_NAME.findall(statement))
    numbers = iter(range(1, len(names) + 1))
    made = {
        "qmark": lambda found: "?",
        "numeric": lambda found: f":{next(numbers)}",
        "named": lambda found: found[0],
        "format": lambda found: "%s",
        "pyformat": lambda found: f"%({found[1]})s",
    }[style]
    return _NAME.sub(made, statement), names


def style_of(connection: object) -> str:
    """The style of the driver that a connection or cursor comes from: its module says so."""
    for cls in type(connection).__mro__:
        package = cls.__module__
        while package:
            style = getattr(sys.modules.get(package), "paramstyle", None)
            if style in STYLES:
                return str(style)
            package = package.rpartition(".")[0]
    raise BadRequest(
        f"it is not known how the driver of {type(connection).__qualname__} writes parameters: "
        "say it with paramstyle="
    )
