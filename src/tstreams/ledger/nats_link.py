"""A connection to NATS servers, for the logs of all shards of a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ..limits import MIB
from .engine import EngineUnavailable, EngineUnfit

log = logging.getLogger("tstreams.ledger")

SERVER_VERSION_MIN = (2, 12)
"""Atomic batches came with it."""

ANSWER_S = 3.0
"""How long an answer is waited for. A server that has lost its leader finds a new one in four seconds and more."""

LOOK_AGAIN_S = 0.25
"""How long to wait for an answer before what changes nothing is asked once more, beside what was asked before. A stream
that has no leader yet, or no longer, answers nobody, and never to what it was asked meanwhile."""

CONNECT_S = 10.0
_RECONNECT_PAUSE_S = 0.1
_PING_S = 5
_STATUS_S = 3.0
_PENDING_BYTES_MAX = 512 * MIB
"""Answers that came and were not looked at yet; beyond that nats-py drops them. Many shards may read at once."""


class NatsLink:
    """One connection, which finds another server by itself when its own is gone.

    Invariant: whoever is in `_waiting` gets an answer, or an error at the latest when the connection breaks or its time
    is over.
    """

    def __init__(self, monitors: Sequence[str]) -> None:
        self._client = Client()
        self._monitors = list(monitors)
        self._inbox = ""
        self._tokens = count(1)
        self._waiting: dict[str, Callable[[Msg | None], None]] = {}
        """By the last part of the reply address. None: the connection broke."""

    @classmethod
    async def connect(
        cls,
        servers: Sequence[str],
        *,
        monitors: Sequence[str] = (),
        within_s: float = CONNECT_S,
        **options: Any,
    ) -> NatsLink:
        """Connect to any of these servers. `monitors` are their monitoring addresses (http://...), which tell how they
        are set up. `options` go to nats-py: user, password, tls. `EngineUnfit` if the server is too old."""
        link = cls(monitors)
        try:
            await asyncio.wait_for(link._connect(servers, options), within_s)
        except (TimeoutError, OSError, nats.errors.Error) as error:
            await link.close()
            raise EngineUnavailable(
                f"no NATS server answers at {', '.join(servers)}: {error!r}"
            ) from error
        version = link._client.connected_server_version
        if (version.major, version.minor) < SERVER_VERSION_MIN:
            await link.close()
            raise EngineUnfit(_too_old("the NATS server", f"{version.major}.{version.minor}"))
        return link

    async def _connect(self, servers: Sequence[str], options: Mapping[str, Any]) -> None:
        await self._client.connect(
            list(servers),
            error_cb=self._failed,
            disconnected_cb=self._disconnected,
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RECONNECT_PAUSE_S,  # type: ignore[arg-type]
            ping_interval=_PING_S,
            **options,
        )
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(
            f"{self._inbox}.*", cb=self._answered, pending_bytes_limit=_PENDING_BYTES_MAX
        )

    @property
    def message_bytes_max(self) -> int:
        """What the server takes as one message, headers included."""
        return self._client.max_payload

    async def close(self) -> None:
        """Disconnect. Those who wait get `EngineUnavailable`."""
        await self._disconnected()
        if not self._client.is_closed:
            await self._client.close()

    # Asking.

    async def ask(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> Msg:
        """Send a message and wait for its answer. `EngineUnavailable`: nobody is there, the time is over, or the
        connection broke."""
        (answer,) = await self._exchange(subject, payload, headers, answer_s, lambda _: True)
        return answer

    async def look(self, what: str, request: object = None) -> Any:
        """Ask JetStream itself for something that changes nothing."""
        payload = b"" if request is None else json.dumps(request).encode()
        (answer,) = await self._exchange(
            f"$JS.API.{what}", payload, None, ANSWER_S, lambda _: True, LOOK_AGAIN_S
        )
        return json.loads(answer.data)

    async def ask_many(
        self, subject: str, payload: bytes, is_last: Callable[[Msg], bool]
    ) -> list[Msg]:
        """Send a message and collect its answers up to the last one."""
        return await self._exchange(subject, payload, None, ANSWER_S, is_last)

    async def _exchange(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None,
        answer_s: float,
        is_last: Callable[[Msg], bool],
        again_s: float | None = None,
    ) -> list[Msg]:
        token = str(next(self._tokens))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answers: list[Msg] = []

        def answered(message: Msg | None) -> None:
            if done.done():
                return
            if message is None:
                done.set_exception(EngineUnavailable("the connection to the NATS server broke"))
            elif _status_of(message) == "503":
                done.set_exception(EngineUnavailable(f"nobody answers at {subject}"))
            else:
                answers.append(message)
                if is_last(message):
                    done.set_result(None)

        self._waiting[token] = answered
        try:
            async with asyncio.timeout(answer_s):
                while not done.done():
                    await self.publish(subject, payload, headers, f"{self._inbox}.{token}")
                    await asyncio.wait([done], timeout=again_s)
                await done
        except TimeoutError as error:
            raise EngineUnavailable(f"no answer from {subject} within {answer_s:g} s") from error
        finally:
            del self._waiting[token]
        return answers

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, reply: str = ""
    ) -> None:
        """Send a message."""
        if not self._client.is_connected:
            raise EngineUnavailable("there is no connection to a NATS server")
        try:
            await self._client.publish(subject, payload, reply, headers)
        except (nats.errors.Error, OSError) as error:
            raise EngineUnavailable(f"sending to {subject} failed: {error!r}") from error

    async def subscribe(
        self, subject: str, told: Callable[[Msg], None], pending_bytes_max: int
    ) -> Subscription:
        """Be told what comes at a subject, also after the connection broke and was made anew. What `told` could not be
        called with yet is dropped when it is more than so many bytes."""

        async def came(message: Msg) -> None:
            told(message)

        try:
            return await self._client.subscribe(
                subject, cb=came, pending_bytes_limit=pending_bytes_max
            )
        except (nats.errors.Error, OSError) as error:
            raise EngineUnavailable(f"following {subject} failed: {error!r}") from error

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Be told no more."""
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()

    async def api(self, what: str, request: object = None, answer_s: float = ANSWER_S) -> Any:
        """Ask JetStream itself. The answer may be an error of its own: `error` is in it then."""
        payload = b"" if request is None else json.dumps(request).encode()
        answer = await self.ask(f"$JS.API.{what}", payload, answer_s=answer_s)
        return json.loads(answer.data)

    async def _answered(self, message: Msg) -> None:
        waiting = self._waiting.get(message.subject.rpartition(".")[2])
        if waiting is not None:
            waiting(message)

    async def _disconnected(self) -> None:
        for waiting in list(self._waiting.values()):
            waiting(None)

    async def _failed(self, error: Exception) -> None:
        log.debug("NATS: %r", error)

    # How the servers are set up.

    async def server_name(self) -> str:
        """The name of the server that we are connected to."""
        answer = await self.ask("$SYS.REQ.USER.INFO", b"")
        return str(json.loads(answer.data).get("server", {}).get("name"))

    async def check_synced(self, replicas: Sequence[str]) -> None:
        """Raise `EngineUnfit` unless the servers of these names sync every write before they acknowledge it, and are new
        enough. Those that cannot be asked are let pass with a warning, as long as they are a minority."""
        if not self._monitors:
            raise EngineUnfit(
                "whether the NATS servers sync every write cannot be known without their monitoring "
                "addresses (http_port in their configuration): name them, or allow servers that do not sync"
            )
        found = await asyncio.gather(
            *(asyncio.to_thread(server_facts, it) for it in self._monitors)
        )
        servers = {str(it.get("server_name")): it for it in found if it is not None}
        for name in replicas:
            if name in servers:
                _check_server(name, servers[name])
        unknown = [name for name in replicas if name not in servers]
        if 2 * len(unknown) >= len(replicas):
            raise EngineUnfit(
                f"of the servers {', '.join(replicas)} nothing is known of {', '.join(unknown)}: none of the "
                f"monitoring addresses {', '.join(self._monitors)} is theirs, or they are down"
            )
        if unknown:
            log.warning("whether these NATS servers sync is not known: %s", ", ".join(unknown))


def server_facts(monitor: str) -> dict[str, Any] | None:
    """What a server tells of itself; None if it does not."""
    url = f"{monitor.rstrip('/')}/varz"
    if not url.startswith(("http://", "https://")):
        raise EngineUnfit(f"{monitor} is not the address of a monitor: http://HOST:PORT")
    try:
        with urllib.request.urlopen(url, timeout=_STATUS_S) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, ValueError) as error:
        log.warning("the NATS server at %s does not tell of itself: %s", monitor, error)
        return None


def _check_server(name: str, found: Mapping[str, Any]) -> None:
    version = str(found.get("version", ""))
    if tuple(int(it) for it in version.split(".")[:2] if it.isdigit()) < SERVER_VERSION_MIN:
        raise EngineUnfit(_too_old(f"the NATS server {name}", version))
    config = found.get("jetstream", {}).get("config", {})
    if not config.get("sync_always"):
        raise EngineUnfit(
            f"the NATS server {name} does not sync every write before it acknowledges it: a power failure could "
            f"lose what was confirmed. Set `sync_interval: always` in the block `jetstream` of its "
            f"configuration, or allow servers that do not sync"
        )


def _too_old(who: str, version: str) -> str:
    wanted = ".".join(map(str, SERVER_VERSION_MIN))
    return f"{who} has version {version}; {wanted} or newer is needed"


def _status_of(message: Msg) -> str | None:
    return None if message.headers is None else message.headers.get("Status")
