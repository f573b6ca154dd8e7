"""The options of `format("tstreams")`: read, checked, and put into words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from ..client.config import ClientConfig, Read, Tls, check_read
from ..errors import BadRequest
from ..limits import CLIENT_TIMEOUT_S, MIB, PARTITIONS_MAX, STAGING_TTL_S
from ..model import ID_MAX, check_name, first_id_at, milliseconds

Ids = dict[str, dict[int, int]]
"""Transaction ids by stream and partition."""

READ_OPTIONS = [
    "url",
    "stream",
    "start",
    "end",
    "maxTransactionsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "consumer",
    "metadata",
    "headers",
    "failOnDataLoss",
    "token",
    "read",
    "timeout",
    "tlsCa",
    "tlsCert",
    "tlsKey",
    "tracing",
    "traceparent",
]
WRITE_OPTIONS = [
    "url",
    "stream",
    "maxTransactionBytes",
    "stagingTtl",
    "compression",
    "token",
    "timeout",
    "tlsCa",
    "tlsCert",
    "tlsKey",
    "tracing",
    "traceparent",
]
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
DIGITS_MAX = 18
"""Of a number in an option: all such numbers fit into 64 bits."""
SPARK_OPTIONS = ("path", "checkpointlocation", "queryname", "__cdc_data_source")
"""What Spark hands to every source and sink along with its own options."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Which streams to read: some by name, or all that begin with something."""

    names: tuple[str, ...] = ()
    prefix: str | None = None

    @staticmethod
    def parse(text: str) -> Streams:
        """`orders`, `orders,bills`, `orders-*`, or a JSON list of names."""
        if text.startswith("["):
            names = _json(text, "stream")
            if not isinstance(names, list) or not names:
                raise BadRequest(f"option stream: a list of names, not {text!r}")
        elif text.endswith("*"):
            return Streams(prefix=text[:-1])
        else:
            names = [name.strip() for name in text.split(",")]
        return Streams(tuple(check_name(name) for name in names))


@dataclass(frozen=True, slots=True)
class Point:
    """A point in streams, as the options `start` and `end` name it."""

    kind: str
    id: int = 0
    """For a time: the first id that belongs to it, or to a later one."""
    ids: Ids | None = None

    @staticmethod
    def parse(text: str, option: str, streams: Streams) -> Point:
        """`oldest`, `newest`, a time such as `2026-01-01T12:00:00Z`, or ids by partition as JSON."""
        if text.lower() in ("oldest", "newest"):
            return Point(text.lower())
        if text.startswith("{"):
            return Point("ids", ids=_ids(_json(text, option), option, streams))
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise BadRequest(
                f"option {option}: oldest, newest, a time such as 2026-01-01T12:00:00Z, or ids by "
                f'partition such as {{"0": 179300000000000000}}; not {text!r}'
            ) from None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return Point("time", first_id_at(when))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a source was told."""

    client: ClientConfig
    streams: Streams
    start: Point
    end: Point
    transactions_max: int | None
    bytes_max: int | None
    partitions_min: int
    consumer: str | None
    metadata: bool | None
    """None: with items, and not with the rows of a schema."""
    fail_on_data_loss: bool
    headers: bool = False
    """Whether the headers of each item's transaction are a column."""
    traceparent: str | None = None
    """The span that the query belongs to."""

    @staticmethod
    def parse(given: Mapping[str, str]) -> ReadOptions:
        """Check the options of a source."""
        options = _Options(given, READ_OPTIONS)
        streams = Streams.parse(options.required("stream"))
        return ReadOptions(
            options.client(),
            streams,
            Point.parse(options.get("start", "oldest"), "start", streams),
            Point.parse(options.get("end", "newest"), "end", streams),
            options.number("maxTransactionsPerTrigger"),
            options.number("maxBytesPerTrigger"),
            options.number("minPartitions") or 1,
            options.text("consumer"),
            None if options.text("metadata") is None else options.flag("metadata", False),
            options.flag("failOnDataLoss", True),
            options.flag("headers", False),
            options.traceparent(),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a sink was told."""

    client: ClientConfig
    stream: str | None
    transaction_bytes_max: int
    staging_ttl_s: float
    compression: str
    traceparent: str | None = None
    """The span that the query belongs to."""

    @staticmethod
    def parse(given: Mapping[str, str]) -> WriteOptions:
        """Check the options of a sink."""
        options = _Options(given, WRITE_OPTIONS)
        stream = options.text("stream")
        ttl = options.get("stagingTtl", str(STAGING_TTL_S))
        return WriteOptions(
            options.client(),
            None if stream is None else check_name(stream),
            options.number("maxTransactionBytes") or 16 * MIB,
            milliseconds(float(ttl) if ttl.replace(".", "", 1).isdecimal() else ttl) / 1000,
            options.get("compression", "none"),
            options.traceparent(),
        )


@dataclass(slots=True)
class _Options:
    """Options by name, whatever their case."""

    given: Mapping[str, str]
    known: list[str]
    values: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {name.lower(): value for name, value in self.given.items()}
        known = {name.lower() for name in self.known}
        for name in self.values:
            if name not in known and name not in SPARK_OPTIONS and not name.startswith("spark."):
                raise BadRequest(
                    f"format tstreams knows no option {name!r} here; it knows {', '.join(self.known)}"
                )

    def text(self, name: str) -> str | None:
        return self.values.get(name.lower()) or None

    def get(self, name: str, default: str) -> str:
        return self.text(name) or default

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise BadRequest(f'format tstreams needs .option("{name}", ...)')
        return value

    def number(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.isdecimal() or len(value) > DIGITS_MAX or int(value) == 0:
            raise BadRequest(f"option {name} is a number from 1 on, not {value[:50]!r}")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise BadRequest(f"option {name} is true or false, not {value!r}")
        return value == "true"

    def traceparent(self) -> str | None:
        """As W3C Trace Context has it: a version, a trace, a span and flags."""
        value = self.text("traceparent")
        if value is not None and not _TRACEPARENT.fullmatch(value):
            raise BadRequest(
                "option traceparent is such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01, "
                f"not {value[:100]!r}"
            )
        return value

    def client(self) -> ClientConfig:
        """How to reach the server. Can be pickled, and is, to each executor."""
        ca, cert, key = self.text("tlsCa"), self.text("tlsCert"), self.text("tlsKey")
        tls = Tls(ca_file=ca, cert_file=cert, key_file=key) if ca or cert else None
        timeout = self.get("timeout", str(CLIENT_TIMEOUT_S))
        try:
            timeout_s = float(timeout)
        except ValueError:
            raise BadRequest(f"option timeout is a number of seconds, not {timeout!r}") from None
        tracing = None
        if self.text("tracing") is not None or self.text("traceparent") is not None:
            tracing = self.flag("tracing", True)
        url, token = self.required("url"), self.get("token", "")
        read = self.get("read", "leader")
        check_read(read)
        return ClientConfig(url, token, timeout_s, tls, tracing=tracing, read=cast(Read, read))


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"option {option} is no JSON: {error}") from None


def _ids(found: Any, option: str, streams: Streams) -> Ids:
    """Ids by partition, of one stream or of several."""
    if all(isinstance(value, dict) for value in found.values()):
        by_stream = found
    elif len(streams.names) == 1:
        by_stream = {streams.names[0]: found}
    else:
        raise BadRequest(f"option {option}: with several streams, ids are by stream and partition")
    try:
        ids = {
            name: {int(partition): int(it) for partition, it in partitions.items()}
            for name, partitions in by_stream.items()
        }
    except (TypeError, ValueError, OverflowError):
        raise BadRequest(f"option {option}: partitions and ids are numbers") from None
    if any(not 0 <= it < PARTITIONS_MAX for partitions in ids.values() for it in partitions):
        raise BadRequest(f"option {option}: a partition is a number from 0 to {PARTITIONS_MAX - 1}")
    if any(not 0 <= it <= ID_MAX for partitions in ids.values() for it in partitions.values()):
        raise BadRequest(f"option {option}: an id is not negative, and has 63 bits")
    return ids
