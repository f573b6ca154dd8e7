"""A stream's schema: what it may hold, which rows fit it, and how it may grow.

A schema grows by nullable columns at its end, and by nothing else. So a batch needs no version: it has the
first columns of the schema, and its own bytes say how many. The rest are nulls.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest, Corrupt, TooLarge
from ..limits import SCHEMA_BYTES_MAX
from .codec import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

ADDED = b"tstreams.added"
"""Marks a column, in its metadata, that a schema did not begin with: rows may come without it."""


def pyarrow() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError:
        raise ImportError("Arrow data needs pyarrow: pip install 'tstreams[arrow]'") from None
    return pa


def pack_schema(schema: pa.Schema) -> bytes:
    """A stream's schema as the stream carries it. `BadRequest` for types that a batch cannot hold."""
    if len(schema) == 0:
        raise BadRequest("a schema has at least one column")
    if len(set(schema.names)) < len(schema):
        (name, _), *_ = Counter(schema.names).most_common(1)
        raise BadRequest(f"a schema has one column of a name, not several that are {name!r}")
    for field in schema:
        check_type(field.type, field.name)
    data = bytes(schema.serialize())
    if len(data) > SCHEMA_BYTES_MAX:
        raise TooLarge(f"a schema of {len(data)} bytes is over the limit of {SCHEMA_BYTES_MAX}")
    return data


def read_schema(data: Buffer) -> pa.Schema:
    """The schema that a stream carries. `Corrupt` if the bytes are none."""
    pa = pyarrow()
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except Exception as error:
        raise Corrupt(f"a schema of {len(data)} bytes cannot be read: {error}") from None


def check_type(kind: Any, column: str) -> None:
    """`BadRequest` if a batch cannot hold such a column."""
    types = pyarrow().types
    if types.is_dictionary(kind):
        raise BadRequest(
            f"column {column!r} is dictionary-encoded, and a batch stands alone, without a dictionary: "
            f"cast it to {kind.value_type}"
        )
    inner = getattr(kind, "storage_type", kind)
    if inner is not kind:
        check_type(inner, column)
    for index in range(inner.num_fields):
        check_type(inner.field(index).type, column)


# Growing.


def grown(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The new schema, with what was added marked. `BadRequest` names the column that keeps it from being
    the old one with nullable columns behind it."""
    _check_kept(old, new)
    fields = [_with_mark(field, old.field(n)) for n, field in enumerate(list(new)[: len(old)])]
    for field in list(new)[len(old) :]:
        if not field.nullable:
            raise BadRequest(
                f"column {field.name!r} is new and not nullable: what was written before has no value for it"
            )
        fields.append(field.with_metadata({**(field.metadata or {}), ADDED: b"1"}))
    return pyarrow().schema(fields, metadata=new.metadata)


def _check_kept(old: pa.Schema, new: pa.Schema) -> None:
    names = new.names
    for at, field in enumerate(old):
        if field.name not in names:
            raise BadRequest(
                f"column {field.name!r} is missing: columns can be added, not taken away"
            )
        changed = new.field(names.index(field.name))
        if changed.type != field.type:
            raise BadRequest(
                f"column {field.name!r} is {field.type} and cannot become {changed.type}: add a column "
                "of another name"
            )
        if changed.nullable != field.nullable:
            now, then = ("" if it.nullable else "not " for it in (field, changed))
            raise BadRequest(
                f"column {field.name!r} is {now}nullable and cannot become {then}nullable"
            )
        if names[at] != field.name:
            raise BadRequest(
                f"column {names[at]!r} comes before {field.name!r}: new columns come at the end, and the "
                "others stay in their order"
            )


def _with_mark(field: Any, old: Any) -> Any:
    if not was_added(old):
        return field
    return field.with_metadata({**(field.metadata or {}), ADDED: b"1"})


def was_added(field: Any) -> bool:
    """Whether a schema did not begin with this column."""
    return ADDED in (field.metadata or {})


# Rows.


def fitted(batch: Any, schema: Any) -> Any:
    """The batch with the stream's schema, or with its first columns if only added ones are missing.

    Metadata does not count. `BadRequest` names the column that does not fit.
    """
    if batch.schema.equals(schema, check_metadata=True):
        _check_nulls(batch, schema)
        return batch
    own, names = batch.schema, schema.names
    for at, field in enumerate(own):
        if field.name not in names:
            raise BadRequest(
                f"the stream's schema has no column {field.name!r}: it has {', '.join(names)}"
            )
        wanted = schema.field(field.name)
        if field.type != wanted.type:
            raise BadRequest(
                f"column {field.name!r} is {field.type}, and {wanted.type} in the stream's schema: cast it"
            )
        if names[at] != field.name:
            raise _out_of_place(own, schema, field.name)
    _check_nulls(batch, schema)
    for field in list(schema)[len(own) :]:
        if not was_added(field):
            raise BadRequest(f"column {field.name!r} of the stream's schema is missing")
    return pyarrow().RecordBatch.from_arrays(batch.columns, schema=first_columns(schema, len(own)))


def _check_nulls(batch: Any, schema: Any) -> None:
    for field, column in zip(schema, batch.columns, strict=False):
        if not field.nullable and column.null_count:
            raise BadRequest(
                f"column {field.name!r} has nulls, and the stream's schema allows none"
            )


def _out_of_place(own: Any, schema: Any, column: str) -> BadRequest:
    for field in schema:
        if field.name not in own.names and not was_added(field):
            return BadRequest(f"column {field.name!r} of the stream's schema is missing")
    order = ", ".join(schema.names)
    return BadRequest(f"column {column!r} is not in its place: the order is {order}")


def first_columns(schema: Any, count: int) -> Any:
    """The schema as it was when it had so many columns."""
    if count == len(schema):
        return schema
    return pyarrow().schema(list(schema)[:count], metadata=schema.metadata)


def columns_within(schema: Any, nodes: int) -> int:
    """How many of the schema's columns a batch has that consists of so many arrays, nested ones included.

    All of them, if it has more: it was written when the schema had grown further.
    """
    for count, field in enumerate(schema):
        if nodes <= 0:
            return count
        nodes -= _arrays(field.type)
    return len(schema)


def _arrays(kind: Any) -> int:
    """How many arrays a column of this type consists of."""
    inner = getattr(kind, "storage_type", kind)
    return 1 + sum(_arrays(inner.field(index).type) for index in range(inner.num_fields))


def widened(batch: Any, schema: Any) -> Any:
    """The batch with nulls in the columns that it has not."""
    pa = pyarrow()
    missing = list(schema)[batch.num_columns :]
    nulls = [pa.nulls(batch.num_rows, field.type) for field in missing]
    return pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=schema)
