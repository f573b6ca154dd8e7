"""Where a reader stands in a stream, kept in the user's database, inside the user's own transactions.

The table has a row for each partition, and one more (partition -1) that says who holds the name. Whoever
saves touches that row first, on the condition that it still holds it. The database locks the row until the
end of the transaction, so that of two holders one waits for the other, and then finds that it is fenced.
That needs READ COMMITTED or more, which is the least that databases have by default.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..errors import BadRequest, Fenced, Unavailable
from ..limits import SINK_CLAIMS_MAX
from ..model import ID_MAX, Offset, Stream, check_name
from .database import Database, database_of, reached
from .failures import is_about_integrity
from .parameters import check_style

_TABLE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_HOLDER = -1
"""The partition of the row that says who holds the name."""

_CREATE = """\
create table offsets_table (
    reader varchar(255) not null,
    stream varchar(255) not null,
    stream_id bigint not null,
    partition_no integer not null,
    transaction_id bigint not null,
    epoch bigint not null,
    holder varchar(32) not null,
    saves bigint not null,
    primary key (reader, stream, stream_id, partition_no)
)"""
_LOOK = "select reader from offsets_table where 1 = 0"
_STREAM = "reader = :reader and stream = :stream and stream_id = :stream_id"
_ROW = f"{_STREAM} and partition_no = :partition_no"
_INSERT = """\
insert into offsets_table
    (reader, stream, partition_no, stream_id, transaction_id, epoch, holder, saves)
values (:reader, :stream, :partition_no, :stream_id, :transaction_id, :epoch, :holder, 1)"""
_CLAIM = "update offsets_table set epoch = epoch + 1, holder = :holder where this_row"
_RENEW = "update offsets_table set epoch = epoch + 1 where this_row and holder = :holder"
_EPOCH = "select epoch from offsets_table where this_row and holder = :holder"
# `saves` makes each update a change: some drivers count only the rows that have changed.
_TOUCH = """\
update offsets_table set saves = saves + 1
where this_row and epoch = :epoch and holder = :holder"""
_UPDATE = """\
update offsets_table
set transaction_id = :transaction_id, epoch = :epoch, holder = :holder, saves = saves + 1
where this_row"""
_POSITIONS = """\
select partition_no, transaction_id from offsets_table
where this_stream and partition_no >= 0"""


@runtime_checkable
class Placed(Protocol):
    """What has a place in a stream: a transaction that was read, of either face of the client."""

    @property
    def stream(self) -> str:
        """The name of its stream."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def id(self) -> int:
        """Its id."""


class Seeking(Protocol):
    """What can go on elsewhere: a consumer."""

    @property
    def partitions(self) -> list[int]:
        """The partitions that it reads."""

    def seek(self, partition: int, offset: Offset) -> None:
        """Go on elsewhere."""


Read: TypeAlias = Placed | Iterable[Placed] | Mapping[int, int]
"""Transactions, or the id of the last one in each partition."""


@dataclass(frozen=True)
class Claim:
    """A name in a database that is ours, until somebody else claims it."""

    reader: str
    stream: str
    stream_id: int
    epoch: int
    """How many times the name was claimed."""
    holder: str
    """Who holds it: something that nobody else has."""
    positions: Mapping[int, int] = field(default_factory=dict)
    """The id of the last transaction that was stored in each partition, when it was claimed."""

    def offset(self, partition: int) -> Offset | None:
        """Where to go on in a partition; None if nothing was saved there."""
        found = self.positions.get(partition)
        return None if found is None else Offset.after(found)

    def seek(self, consumer: Seeking) -> None:
        """Let a consumer go on where the database says. Other partitions stay where they are."""
        for partition in consumer.partitions:
            offset = self.offset(partition)
            if offset is not None:
                consumer.seek(partition, offset)


class OffsetStore:
    """A table of offsets in your database. It is made when it is first needed.

    Works with DB-API 2 connections and cursors, and with SQLAlchemy's connections and sessions (engines,
    where no transaction of yours is meant). `table` may have a schema before it, `audit.offsets`.
    `paramstyle` is for drivers that do not tell how they write parameters.
    """

    def __init__(self, table: str = "tstreams_offsets", *, paramstyle: str | None = None) -> None:
        if not isinstance(table, str) or _TABLE.fullmatch(table) is None:
            raise BadRequest(
                "the name of a table has letters, digits and underscores, with a schema and a point "
                f"before it if you like: {table!r}"
            )
        self.table = table
        self.paramstyle = None if paramstyle is None else check_style(paramstyle)

    @property
    def ddl(self) -> str:
        """The statement that makes the table, for whoever may not make tables in programs."""
        return self._sql(_CREATE)

    def claim(self, connection: Any, reader: str, stream: Stream) -> Claim:
        """Take a name over: nobody who has claimed it before can save any more.

        It needs a transaction of its own, and commits it; it waits for a `save` that is under way. The
        `stream` is what `client.stream(name)` gives. What was saved for a stream of the same name that
        was deleted since does not count.
        """
        check_name(reader, "reader")
        values = self._key(reader, stream.name, stream.id)
        values["holder"] = uuid.uuid4().hex
        with reached(connection, self.paramstyle) as database:
            database.check_idle()
            self._make_table(database)
            for _ in range(SINK_CLAIMS_MAX):
                try:
                    if not database.change(self._sql(_CLAIM), values):
                        database.execute(self._sql(_INSERT), values)
                    return self._finish(database, values)
                except Exception as error:
                    database.rollback()
                    if not is_about_integrity(error):  # else another has made the row: once more
                        raise
        raise Unavailable(f"too many claim the name {reader!r} in {self.table} at once: try again")

    def renew(self, connection: Any, claim: Claim) -> Claim:
        """Claim a name again, on a new connection, if it is still ours. `Fenced` if it is not.

        Whatever was under way on the old connection has an outcome after this: it waits for a commit, and
        what comes later is refused. The claim that it gives has the positions of then.
        """
        values = self._key(claim.reader, claim.stream, claim.stream_id) | {"holder": claim.holder}
        with reached(connection, self.paramstyle) as database:
            database.check_idle()
            try:
                if not database.change(self._sql(_RENEW), values):
                    raise self._fenced(claim.reader, claim.stream)
                return self._finish(database, values)
            except Exception:
                database.rollback()
                raise

    def load(self, connection: Any, reader: str, stream: Stream) -> dict[int, int]:
        """The id of the last transaction that was stored in each partition. Claims nothing.

        The table has to be there.
        """
        with reached(connection, self.paramstyle) as database:
            return self._positions(database, self._key(reader, stream.name, stream.id))

    def save(self, connection: Any, claim: Claim, transactions: Read) -> None:
        """Save that these transactions are stored, inside the transaction in which you store them.

        Commit both together. `Fenced` if somebody else has claimed the name: roll back then. Call it
        last, just before the commit: from here on others who claim the name wait for yours.
        """
        positions = _positions_of(transactions, claim)
        database = database_of(connection, self.paramstyle)
        database.check_atomic()
        holder = self._key(claim.reader, claim.stream, claim.stream_id)
        holder |= {"epoch": claim.epoch, "holder": claim.holder}
        if not database.change(self._sql(_TOUCH), holder):
            raise self._fenced(claim.reader, claim.stream)
        rows = [
            {**holder, "partition_no": partition, "transaction_id": found}
            for partition, found in sorted(positions.items())
        ]
        self._write(database, rows)

    # Inside.

    def _write(self, database: Database, rows: list[dict[str, Any]]) -> None:
        """Nobody else writes them: the holder's row is locked."""
        update = self._sql(_UPDATE)
        if len(rows) > 1 and database.change_many(update, rows) == len(rows):
            return
        for row in rows:  # some are new, or the driver does not add up
            if not database.change(update, row):
                database.execute(self._sql(_INSERT), row)

    def _finish(self, database: Database, values: dict[str, Any]) -> Claim:
        """The name is ours: what did the one before us leave? Only now nobody can add to it."""
        found = database.query(self._sql(_EPOCH), values)
        if not found:  # without a transaction around it another may have been faster
            raise self._fenced(values["reader"], values["stream"])
        ((epoch,),) = found
        positions = self._positions(database, values)
        database.commit()
        return Claim(
            values["reader"],
            values["stream"],
            values["stream_id"],
            int(epoch),
            values["holder"],
            positions,
        )

    def _positions(self, database: Database, values: dict[str, Any]) -> dict[int, int]:
        found = database.query(self._sql(_POSITIONS), values)
        return {int(partition): int(transaction_id) for partition, transaction_id in found}

    def _make_table(self, database: Database) -> None:
        """Not every database knows "if not exists", nor is it safe in all of them when two do it at once."""
        look = self._sql(_LOOK)
        try:
            database.query(look, {})
        except Exception:
            database.rollback()
            try:
                database.execute(self.ddl, {})
                database.commit()
            except Exception as error:
                database.rollback()
                try:
                    database.query(look, {})
                except Exception:
                    database.rollback()
                    raise error from None
        database.rollback()

    def _key(self, reader: str, stream: str, stream_id: int) -> dict[str, Any]:
        return {
            "reader": reader,
            "stream": stream,
            "partition_no": _HOLDER,
            "stream_id": stream_id,
            "transaction_id": 0,
            "epoch": 1,
        }

    def _sql(self, statement: str) -> str:
        for name, text in (
            ("this_row", _ROW),
            ("this_stream", _STREAM),
            ("offsets_table", self.table),
        ):
            statement = statement.replace(name, text)
        return statement

    def _fenced(self, reader: str, stream: str) -> Fenced:
        return Fenced(
            f"{reader!r}, which stores stream {stream!r}, was claimed by another in table {self.table} "
            "(or its row there is gone): roll back, and leave it to that one"
        )

    def __repr__(self) -> str:
        return f"<offsets in table {self.table}>"


def _positions_of(transactions: Read, claim: Claim) -> dict[int, int]:
    """The last id of each partition."""
    if isinstance(transactions, Mapping):
        pairs = list(transactions.items())
    else:
        listed = [transactions] if isinstance(transactions, Placed) else list(transactions)
        for it in listed:
            if it.stream != claim.stream:
                raise BadRequest(
                    f"a transaction of stream {it.stream!r} is none of {claim.stream!r}"
                )
        pairs = [(it.partition, it.id) for it in listed]
    positions: dict[int, int] = {}
    for partition, transaction_id in pairs:
        for number, limit in ((partition, 2**31 - 1), (transaction_id, ID_MAX)):
            if type(number) is not int or not 0 <= number <= limit:
                raise BadRequest(
                    f"partition {partition!r}, transaction {transaction_id!r}: no such"
                )
        positions[partition] = max(transaction_id, positions.get(partition, 0))
    return positions
