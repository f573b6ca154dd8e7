"""The engine on NATS JetStream: one JetStream stream for a shard, one subject for a ledger.

An entry is one message, or if it is larger than a message, one atomic batch of them. All carry a header of ours,
`mark offset part parts`. The condition is `Nats-Expected-Last-Sequence`; a place is a sequence number of the stream.
`Nats-Msg-Id` is not used: what it guards against is forgotten after two minutes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from nats.aio.msg import Msg

from ..limits import KIB, MIB
from .engine import (
    READ_BYTES,
    Draft,
    EndMoved,
    EngineFull,
    EngineUnavailable,
    EngineUnfit,
    Entry,
    Place,
)
from .jetstream_parts import HEADER, NEWS_BYTES_MAX, News, Part, entry_of, whole
from .nats_link import ANSWER_S, NatsLink

log = logging.getLogger("tstreams.ledger")

HEADER_BYTES_MAX = 1 * KIB
"""What headers may take of a message."""

_WRONG_LAST_SEQUENCE = (10071, 10164)
_NO_ROOM = (10002, 10023, 10047)
_STREAM_NOT_FOUND = 10059
_MESSAGES_PER_READ = 1000
_BATCH_MESSAGES_MAX = 1000
"""The server's limit for one atomic batch: a gigabyte."""
AGAIN_S_MIN, AGAIN_S_MAX = 0.002, 0.1
"""When to look again for a message that we were told of, and the server that was asked did not have yet."""
_CREATE_S = 15.0
_SLOW_BYTES_PER_S = 4 * MIB
"""A large entry is waited for as if the servers wrote no faster than this."""


class JetStreamEngine:
    """The log of one shard in JetStream. `await JetStreamEngine.open(...)`."""

    tells_again = True

    def __init__(self, link: NatsLink, name: str) -> None:
        self._link = link
        self.stream = f"tstreams-{name}"
        self._subjects = f"tstreams.{name}"
        self._told = f"tstreams-told.{name}"
        self._direct = f"$JS.API.DIRECT.GET.{self.stream}"
        self._told_of: Place = 0
        """The last message that we were told of. A server that lags behind may not have it yet."""
        self._watchers: set[asyncio.Event] = set()
        self._news = News()
        self._again_s = AGAIN_S_MIN

    @classmethod
    async def open(
        cls, link: NatsLink, name: str, *, replicas: int = 3, require_sync: bool = True
    ) -> JetStreamEngine:
        """The log of this name (letters, digits, `-` and `_`), which is made if it is not there. `EngineUnfit` if the
        stream is set up in another way, or if its servers do not sync every write, unless that is not required."""
        if re.fullmatch(r"[A-Za-z0-9_-]+", name) is None:
            raise EngineUnfit(f"a log cannot be called {name!r}")
        engine = cls(link, name)
        info = await engine._have_stream(replicas)
        if require_sync:
            await link.check_synced(await engine._replicas(info))
        return engine

    async def _replicas(self, info: Any) -> list[str]:
        """The servers that have the stream."""
        cluster = info.get("cluster")
        if cluster is None:  # it is the only one
            return [await self._link.server_name()]
        names = [it["name"] for it in cluster.get("replicas") or []]
        return [cluster["leader"], *names] if cluster.get("leader") else names

    def _config(self, replicas: int) -> dict[str, object]:
        """The stream. When it is full it refuses what is new, and never drops what is old; nobody can delete single
        messages; each new message goes to those who follow, and they need not ask for it."""
        return {
            "name": self.stream,
            "subjects": [f"{self._subjects}.*"],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "num_replicas": replicas,
            "max_age": 0,
            "max_bytes": -1,
            "max_msgs": -1,
            "max_msgs_per_subject": -1,
            "allow_direct": True,
            "allow_atomic": True,
            "deny_delete": True,
            "republish": {"src": f"{self._subjects}.*", "dest": self._told},
        }

    async def _have_stream(self, replicas: int) -> Any:
        wanted = self._config(replicas)
        info = await self._link.look(f"STREAM.INFO.{self.stream}")
        if (error := info.get("error")) is not None:
            if error.get("err_code") != _STREAM_NOT_FOUND:
                _refuse(error)
            info = await self._link.api(f"STREAM.CREATE.{self.stream}", wanted, _CREATE_S)
            if (error := info.get("error")) is not None:
                _refuse(error)
        found = info["config"]
        wrong = [key for key, value in wanted.items() if found.get(key) != value]
        if found.get("persist_mode") == "async":
            wrong.append("persist_mode")
        if wrong:
            said = ", ".join(
                f"{key} is {found.get(key)!r}, not {wanted.get(key)!r}" for key in wrong
            )
            raise EngineUnfit(
                f"the JetStream stream {self.stream} is set up in another way: {said}"
            )
        return info

    async def close(self) -> None:
        """Nothing to do: the link is the caller's."""

    # Writing.

    async def append(self, entry: Draft, expected: Place) -> Place:
        """One message, or one atomic batch, on condition that the stream's last sequence number is `expected`."""
        size = self._link.message_bytes_max - HEADER_BYTES_MAX
        data = memoryview(entry.data)
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        if len(parts) > _BATCH_MESSAGES_MAX:
            raise EngineUnfit(
                f"a group of {len(data)} bytes is larger than JetStream takes at once"
            )
        subject = f"{self._subjects}.{entry.ledger_id:x}"
        batch = None if len(parts) == 1 else f"{entry.mark}-{asyncio.get_running_loop().time()}"
        for number, part in enumerate(parts, 1):
            headers = {HEADER: f"{entry.mark} {entry.offset} {number} {len(parts)}"}
            if number == 1:
                headers["Nats-Expected-Last-Sequence"] = str(expected)
            if batch is not None:
                headers["Nats-Batch-Id"] = batch
                headers["Nats-Batch-Sequence"] = str(number)
            if number < len(parts):
                await self._link.publish(subject, bytes(part), headers)
                continue
            if batch is not None:
                headers["Nats-Batch-Commit"] = "1"
            answer_s = ANSWER_S + len(data) / _SLOW_BYTES_PER_S
            answer = await self._link.ask(subject, bytes(part), headers, answer_s)
        return self._placed(json.loads(answer.data), expected, len(parts))

    def _placed(self, answer: dict[str, Any], expected: Place, parts: int) -> Place:
        if (error := answer.get("error")) is not None:
            _refuse(error)
        place = int(answer["seq"])
        if answer.get("stream") != self.stream or place < expected + parts:
            raise EngineUnavailable(f"an answer of JetStream makes no sense: {answer}")
        return place

    async def delete(self, ledger_ids: Iterable[int]) -> None:
        """Purge the subjects of these ledgers."""
        for ledger_id in sorted(ledger_ids):
            answer = await self._link.api(
                f"STREAM.PURGE.{self.stream}", {"filter": f"{self._subjects}.{ledger_id:x}"}
            )
            if (error := answer.get("error")) is not None:
                _refuse(error)

    # Reading.

    async def end(self) -> Place:
        """The stream's last sequence number, as its leader knows it."""
        info = await self._info()
        state = info["state"]
        if state["messages"] == 0 and state["last_seq"] > 0:
            raise EngineUnfit(f"somebody has emptied the JetStream stream {self.stream}")
        return int(state["last_seq"])

    async def ledgers(self) -> list[int]:
        """The subjects of which there are messages."""
        subjects: set[str] = set()
        while True:
            request = {"subjects_filter": ">", "offset": len(subjects)}
            info = await self._info(request)
            found = info["state"].get("subjects") or {}
            subjects |= found.keys()
            if not found or len(subjects) >= info.get("total", 0):
                return sorted(int(it.rpartition(".")[2], 16) for it in subjects)

    async def _info(self, request: object = None) -> Any:
        info = await self._link.look(f"STREAM.INFO.{self.stream}", request)
        if (error := info.get("error")) is not None:
            _refuse(error)
        return info

    async def read(self, after: Place, bytes_max: int = READ_BYTES) -> list[Entry]:
        """What came by itself, or else by direct gets, from any of the servers that have the stream."""
        came = self._news.after(after, bytes_max)
        entries = whole(came) if came else await self._read(after, bytes_max)
        if entries:
            self._again_s = AGAIN_S_MIN
        if self._watchers and self._told_of > (entries[-1].place if entries else after):
            if entries:
                self._wake()
            else:
                asyncio.get_running_loop().call_later(self._again_s, self._wake)
                self._again_s = min(2 * self._again_s, AGAIN_S_MAX)
        return entries

    async def _read(self, after: Place, bytes_max: int) -> list[Entry]:
        parts = await self._get(after + 1, bytes_max)
        while parts and parts[0].number != 1:  # what is left of a ledger that is being deleted
            last = parts.pop(0)
            if not parts:
                return await self._read(last.sequence, bytes_max)
        while parts and (missing := parts[-1].count - parts[-1].number):
            if before := parts[: -parts[-1].number]:
                return whole(before)  # the last one is read the next time, from its beginning
            more = await self._get(parts[-1].sequence + 1, READ_BYTES, missing)
            if not more:
                return []  # who answered does not have all of it yet
            parts += more
        return whole(parts)

    async def find(self, ledger_id: int, offset: int) -> Entry | None:
        """By bisection: the messages of a ledger follow on each other, and so do their offsets."""
        first = await self._get_one({"seq": 1, "next_by_subj": f"{self._subjects}.{ledger_id:x}"})
        if first is None or offset == first.offset:
            return None if first is None else await self._whole_at(first)
        last = await self._get_one({"last_by_subj": f"{self._subjects}.{ledger_id:x}"})
        if last is None:
            return None
        low, high = first.sequence, last.sequence
        while low <= high:
            middle = (low + high) // 2
            part = await self._get_one({"seq": middle})
            if part is None:
                return None
            if part.offset == offset:
                return await self._whole_at(part)
            if part.offset < offset:
                low = middle + 1
            else:
                high = middle - 1
        return None

    async def last(self, ledger_id: int) -> Entry | None:
        """The last message of its subject, and those that belong to it."""
        part = await self._get_one({"last_by_subj": f"{self._subjects}.{ledger_id:x}"})
        return None if part is None else await self._whole_at(part)

    async def _whole_at(self, part: Part) -> Entry | None:
        """The entry that a message belongs to."""
        if part.count == 1:
            return entry_of([part])
        entries = await self.read(part.sequence - part.number, 1)
        return entries[0] if entries and entries[0].mark == part.mark else None

    async def _get(
        self, sequence: int, bytes_max: int, messages: int = _MESSAGES_PER_READ
    ) -> list[Part]:
        request = {
            "seq": sequence,
            "next_by_subj": f"{self._subjects}.*",
            "batch": messages,
            "max_bytes": bytes_max,
        }
        answers = await self._link.ask_many(self._direct, json.dumps(request).encode(), _is_end)
        _check_status(answers[-1])
        return [Part.of(it) for it in answers[:-1]]

    async def _get_one(self, request: dict[str, object]) -> Part | None:
        answer = await self._link.ask(self._direct, json.dumps(request).encode())
        if _is_end(answer):
            _check_status(answer)
            return None
        return Part.of(answer)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[asyncio.Event]:
        """What the stream republishes. Who is told of a message and does not find it is told again."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            subscription = await self._link.subscribe(self._told, self._hear, NEWS_BYTES_MAX)
            try:
                yield changed
            finally:
                await self._link.unsubscribe(subscription)
        finally:
            self._watchers.discard(changed)
            if not self._watchers:
                self._news.clear()

    def _hear(self, message: Msg) -> None:
        """There is a new message in the stream."""
        try:
            part = Part.of(message)
        except EngineUnfit as error:
            log.warning("%s", error)
            return
        self._told_of = max(self._told_of, part.sequence)
        if self._watchers:
            self._news.add(part)
        self._wake()

    def _wake(self) -> None:
        for changed in self._watchers:
            changed.set()


def _is_end(message: Msg) -> bool:
    return message.headers is not None and "Status" in message.headers


def _check_status(message: Msg) -> None:
    """204: no more; 404: nothing."""
    status = (message.headers or {}).get("Status")
    if status not in ("204", "404"):
        raise EngineUnavailable(f"JetStream refuses to read: {status} {message.headers}")


def _refuse(error: dict[str, Any]) -> NoReturn:
    """The error that JetStream has answered with."""
    text = f"JetStream: {error.get('description')} ({error.get('err_code')})"
    if error.get("err_code") in _WRONG_LAST_SEQUENCE:
        raise EndMoved(text)
    if error.get("err_code") in _NO_ROOM:
        raise EngineFull(text)
    raise EngineUnavailable(text)
