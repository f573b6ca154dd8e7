"""Where scenarios are played: a real server in this process, a clock in our hands, and the public client."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import moebius
import tstreams
from tests.scenarios.requests import RawRequests
from tstreams import Offset
from tstreams.cli.schemas import schema_of, text_of
from tstreams.model import IDS_PER_MS, milliseconds
from tstreams.server import Node
from tstreams.server.shard import Shard
from tstreams.sharding import shard_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_numbers = itertools.count(1)
_LONG_NUMBER = re.compile(r"\d{15,}")
_PATIENCE_S = 0.2
_TICKS = 4
"""The server looks at the clock so often before all that was due has been done."""


class Clock:
    """Stands still until it is moved. Knows when the server has seen the new time."""

    def __init__(self) -> None:
        self.now_ms = round(NOON.timestamp() * 1000)
        self._changed = threading.Condition()
        self._looks = 0

    def __call__(self) -> int:
        with self._changed:
            self._looks += 1
            self._changed.notify_all()
            return self.now_ms

    def move(self, by_ms: int) -> None:
        with self._changed:
            self.now_ms += by_ms
            enough = self._looks + _TICKS
            assert self._changed.wait_for(lambda: self._looks >= enough, 30)

    @property
    def text(self) -> str:
        moment = datetime.fromtimestamp(self.now_ms / 1000, UTC)
        return moment.strftime("%H:%M:%S") + (
            f".{self.now_ms % 1000:03}" * (self.now_ms % 1000 > 0)
        )


class Stage:
    """Plays the commands of one scenario. Each method `do_...` is a command."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._address = f"inproc://scenario-{next(_numbers)}"
        self.clock = Clock()
        self._shards = 1
        self._server = contextlib.ExitStack()
        self._start()
        self._ts = tstreams.connect(self._address)
        self._raw = RawRequests(self._address, self)
        self._producers: dict[str, tstreams.Producer] = {}
        self._consumers: dict[str, tstreams.Consumer] = {}
        self._transactions: dict[str, tstreams.Transaction] = {}
        self.ids: dict[str, int] = {}
        """Everything that has an id, by the name that the scenario gave it."""

    def _start(self) -> None:
        self._node = Node(self._data, [self._address], clock=self.clock, shards=self._shards)
        self._server.enter_context(self._node.in_thread())

    def close(self) -> None:
        self._ts.close()
        self._raw.close()
        self._server.close()

    # Commands.

    def run(self, line: str) -> str:
        """Play one command: what came of it, as text."""
        words = _words(line)
        name, arguments = words[0].replace("-", "_"), words[1:]
        plain = [word for word in arguments if "=" not in word]
        options = dict(word.split("=", 1) for word in arguments if "=" in word)
        command: Callable[..., str | None] = getattr(self, f"do_{name}")
        try:
            answer = command(*plain, **options)
        except (tstreams.Error, moebius.Error) as error:
            kind = type(error).__name__
            if isinstance(error, moebius.Error):
                kind = type(tstreams.Error.from_wire(error.code, "")).__name__
            answer = f"{kind}: {error.message}"
        return self.named(answer or "ok")

    def named(self, text: str) -> str:
        """Ids in a text, replaced by the names that the scenario uses for them."""
        names = {str(number): name for name, number in self.ids.items()}
        text = self._raw.named(text)
        return _LONG_NUMBER.sub(lambda found: names.get(found[0], "an id of its own"), text)

    # Streams.

    def do_stream(self, name: str, **options: str) -> None:
        partitions = int(options.pop("partitions", "1"))
        schema = schema_of(options.pop("schema")) if "schema" in options else None
        self._ts.create_stream(name, partitions, schema=schema, **options)

    def do_alter(self, name: str, **options: str) -> None:
        schema = schema_of(options.pop("schema")) if "schema" in options else None
        self._ts.alter_stream(name, schema=schema, **options)

    def do_schema(self, name: str) -> str:
        found = self._ts.stream(name).schema
        return "none" if found is None else text_of(found)

    def do_delete(self, name: str) -> None:
        self._ts.delete_stream(name)

    def do_purge(self, name: str, before: str) -> None:
        moment = NOON + timedelta(days=1) if before == "tomorrow" else self.ids[before]
        self._ts.purge_stream(name, moment)

    def do_streams(self, prefix: str = "", **options: str) -> str:
        limit = int(options["limit"]) if "limit" in options else None
        found = self._ts.streams(prefix, limit, options.get("after"))
        return _lines(
            f"{it.name}: {_count(it.partitions, 'partition')}, ttl {_duration(it.ttl)}"
            + (f", {it.description!r}" if it.description else "")
            for it in found
        )

    # Writing.

    def do_producer(self, name: str, stream: str, ttl: str = "60s") -> None:
        # p1' is another process that calls itself p1.
        self._producers[name] = self._ts.producer(stream, name.split("'")[0], transaction_ttl=ttl)

    def do_open(self, producer: str, **options: str) -> str:
        name = options.pop("as")
        partition = int(options.pop("partition", "0"))
        given: dict[str, Any] = dict(options)
        transaction = self._producers[producer].open(partition, **given)
        self._transactions[name] = transaction
        self.ids[name] = transaction.id
        return f"{name} is open"

    def do_send(self, transaction: str, *items: str) -> None:
        self._transactions[transaction].send_many([item.encode() for item in items])

    def do_instant(self, producer: str, *items: str, **options: str) -> str:
        partition = int(options.get("partition", "0"))
        encoded = [item.encode() for item in items]
        self.ids[options["as"]] = self._producers[producer].instant(encoded, partition)
        return f"{options['as']} is checkpointed"

    def do_rows(self, producer: str, *rows: str, **options: str) -> str:
        """A transaction of rows such as `user:ann,amount:5`: numbers are int64, all else is text."""
        table = pa.Table.from_pylist([_row(row) for row in rows])
        self.ids[options["as"]] = self._producers[producer].instant(table, 0)
        return f"{options['as']} is checkpointed"

    def do_checkpoint(self, what: str) -> None:
        (self._transactions | self._producers | self._consumers)[what].checkpoint()

    def do_cancel(self, what: str) -> None:
        (self._transactions | self._producers)[what].cancel()

    def do_state(self, *transactions: str) -> str:
        return _lines(f"{it} {self._transactions[it].state.name}" for it in transactions)

    def do_id(self, transaction: str) -> str:
        ms, counter = divmod(self.ids[transaction], IDS_PER_MS)
        moment = datetime.fromtimestamp(ms / 1000, UTC)
        return f"{moment:%H:%M:%S}.{ms % 1000:03}, number {counter} in this millisecond"

    # Reading.

    def do_consumer(self, name: str, stream: str, **options: str) -> None:
        start = self._offset(options["start"]) if "start" in options else None
        resume = options.get("resume", "yes") == "yes"
        self._consumers[name] = self._ts.consumer(
            stream, name.split("'")[0], start=start, resume=resume
        )

    def do_read(self, consumer: str) -> str:
        self._settle()
        found = self._consumers[consumer].read(max_wait=_PATIENCE_S)
        return self._shown(consumer, found)

    def do_get(self, consumer: str, partition: str = "0") -> str:
        self._settle()
        found = self._consumers[consumer].get(int(partition), timeout=_PATIENCE_S)
        return self._shown(consumer, [found])

    def do_last(self, consumer: str, partition: str = "0") -> str:
        return self._shown(consumer, [self._consumers[consumer].last(int(partition))])

    def do_by_id(self, consumer: str, transaction: str, partition: str = "0") -> str:
        found = self._consumers[consumer].by_id(int(partition), self.ids[transaction])
        return self._shown(consumer, [found])

    def do_between(self, consumer: str, first: str, last: str, partition: str = "0") -> str:
        found = self._consumers[consumer].between(int(partition), self.ids[first], self.ids[last])
        return self._shown(consumer, found)

    def do_seek(self, consumer: str, to: str, partition: str = "0") -> None:
        self._consumers[consumer].seek(int(partition), self._offset(to))

    def do_position(self, consumer: str, partition: str = "0") -> str:
        found = self._consumers[consumer].position(int(partition))
        return "none" if found is None else f"{found}"

    # Everything else.

    def do_close(self, agent: str) -> None:
        (self._producers | self._consumers)[agent].close()

    def do_wait(self, duration: str) -> str:
        self.clock.move(milliseconds(duration))
        self._settle()
        self._rest()
        return f"it is {self.clock.text}"

    def do_clock_back(self, duration: str) -> str:
        self.clock.move(-milliseconds(duration))
        return f"it is {self.clock.text}"

    def do_restart(self) -> None:
        self._server.close()
        self._start()

    # Several shards, below the client.

    def do_shards(self, count: str) -> None:
        """Begin anew, with so many of them."""
        self._server.close()
        self._data = self._data.with_name("shards")
        self._shards = int(count)
        self._start()

    def do_settle(self, session: str, group: str) -> None:
        self._raw.settle(session, group)

    def do_fetch(self, stream: str, partition: str) -> str:
        shard = shard_of(stream, int(partition), self._shards)
        return self._raw.fetch(stream, int(partition), shard)

    def do_begin(self, name: str, *words: str, **options: str) -> str:
        """The rest of the line, which may have to wait. `answer` has what comes of it."""
        line = " ".join([*words, *(f"{key}={value}" for key, value in options.items())])
        return self._raw.begin(name, lambda: self.run(line))

    def do_answer(self, name: str) -> str:
        return self._raw.answer(name)

    def do_prepared(self) -> str:
        """In which shards something waits for a decision."""
        self._rest()
        return _lines(
            f"shard {number}"
            for number, shard in self._node.shards.items()
            if shard.core.state.groups.prepared
        )

    def _rest(self) -> None:
        """What shards have to ask and tell each other has been asked and told."""
        end = time.monotonic() + 30
        while self._shards > 1 and not all(map(_is_idle, self._node.shards.values())):
            assert time.monotonic() < end
            time.sleep(0.01)

    def do_session(self, name: str, shard: str = "0") -> None:
        self._raw.session(name, int(shard))

    def do_request(self, session: str, number: str, kind: str, /, **fields: str) -> str:
        return self._raw.request(session, int(number.lstrip("#")), kind, fields)

    # Inside.

    def _settle(self) -> None:
        """What was under way at the server has been done, and told to us, when this is answered."""
        self._ts.streams(limit=1)

    def _offset(self, text: str) -> Offset:
        match text.split(":", 1):
            case ["oldest"]:
                return Offset.oldest()
            case ["newest"]:
                return Offset.newest()
            case ["after", transaction]:
                return Offset.after(self.ids[transaction])
            case ["at", moment]:
                at = datetime.strptime(moment, "%H:%M:%S").time()
                return Offset.at(datetime.combine(NOON.date(), at, UTC))
        raise ValueError(f"{text!r} is no offset")

    def _shown(self, consumer: str, found: Iterable[tstreams.ReadTransaction | None]) -> str:
        stream = self._ts.stream(self._consumers[consumer].stream)
        return _lines(
            f"{it.id}"
            + (f" in partition {it.partition}" if stream.partitions > 1 else "")
            + f": {' '.join(_contents(it, stream.schema is not None))}"
            for it in found
            if it is not None
        )


def _is_idle(shard: Shard) -> bool:
    groups, errands = shard.core.state.groups, shard.errands
    assert errands is not None
    due = [it for it in groups.prepared.values() if it.expires_at_ms <= shard.clock()]
    return not (due or groups.due or groups.decided or errands.statistics().asking)


def _words(line: str) -> list[str]:
    """The words of a command; "several words" in double quotes are one."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split = True
    lexer.quotes, lexer.commenters = '"', ""
    return list(lexer)


def _row(text: str) -> dict[str, str | int]:
    pairs = (pair.split(":", 1) for pair in text.split(","))
    return {name: int(value) if value.isdigit() else value for name, value in pairs}


def _contents(transaction: tstreams.ReadTransaction, rows: bool) -> list[str]:
    if not rows:
        return [bytes(item).decode() for item in transaction.items]
    return [
        ",".join(f"{name}:{'-' if value is None else value}" for name, value in row.items())
        for row in transaction.to_arrow().to_pylist()
    ]


def _lines(lines: Iterable[Any]) -> str:
    return "\n".join(map(str, lines)) or "nothing"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _duration(ttl: timedelta) -> str:
    seconds = ttl.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
