"""Schemas in text, as `tstreams stream show` prints them: `card: string, cents: int64 not null`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest
from ..items import pack_schema

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_HELP = (
    "its columns, with Arrow's names of types, as `stream show` prints them: "
    '"card: string, cents: int64 not null, at: timestamp[us, tz=UTC]"'
)
_COLUMN = re.compile(
    r"\s*([^:,]+?)\s*:\s*(\w+(?:\[[^\]]*\])?(?:\([^)]*\))?)(\s+not\s+null)?\s*(?:,|$)"
)
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:,\s*tz=([^\]]+))?\]")
_DECIMAL = re.compile(r"decimal(128|256)?\((\d+),\s*(\d+)\)")


def schema_of(text: str) -> pa.Schema:
    """The schema that a text stands for. `BadRequest` names the column that cannot be read."""
    import pyarrow as pa

    fields, at = [], 0
    while at < len(text):
        found = _COLUMN.match(text, at)
        if found is None:
            raise BadRequest(f"no column `name: type` at {text[at:].strip()[:60]!r}")
        name, kind, not_null = found.groups()
        fields.append(pa.field(name, _type(name, kind), nullable=not_null is None))
        at = found.end()
    schema = pa.schema(fields)
    pack_schema(schema)
    return schema


def text_of(schema: pa.Schema) -> str:
    """The same, the other way round."""
    return ", ".join(
        f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema
    )


def _type(name: str, kind: str) -> Any:
    import pyarrow as pa

    if found := _TIMESTAMP.fullmatch(kind):
        return pa.timestamp(found[1], found[2])
    if found := _DECIMAL.fullmatch(kind):
        make = pa.decimal256 if found[1] == "256" else pa.decimal128
        return make(int(found[2]), int(found[3]))
    try:
        return pa.type_for_alias(kind)
    except ValueError:
        raise BadRequest(
            f"column {name!r}: Arrow has no simple type {kind!r}; give such a schema from Python"
        ) from None
