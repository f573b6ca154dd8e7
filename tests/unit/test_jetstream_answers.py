"""What JetStream seldom says: refusals, nonsense, servers that lag behind. With real servers it cannot be asked for."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tstreams.ledger.engine import Draft, EndMoved, EngineFull, EngineUnavailable, EngineUnfit
from tstreams.ledger.jetstream import JetStreamEngine
from tstreams.ledger.nats_link import NatsLink


def message(data: bytes = b"", **headers: str) -> Msg:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Msg(Client(), subject="inbox", data=data, headers=named)


def part(sequence: int, number: int = 1, count: int = 1, data: bytes = b"x") -> Msg:
    return message(
        data,
        Tstreams_Entry=f"m-{sequence - number} 512 {number} {count}",
        Nats_Sequence=str(sequence),
        Nats_Subject="tstreams.test.1",
    )


END = message(Status="204")


class Script:
    """A link that gives these answers, one after the other."""

    message_bytes_max = 2048

    def __init__(self, *answers: Any) -> None:
        self._answers = deque(answers)
        self.told: Callable[[Msg], None] = lambda _: None

    async def _next(self, *_: Any, **__: Any) -> Any:
        return self._answers.popleft()

    api = look = ask = ask_many = _next

    async def subscribe(self, subject: str, told: Callable[[Msg], None], limit: int) -> object:
        self.told = told
        return object()

    async def unsubscribe(self, subscription: object) -> None:
        self.told = lambda _: None


def engine(*answers: Any) -> JetStreamEngine:
    return JetStreamEngine(cast(NatsLink, Script(*answers)), "test")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def error(code: int) -> dict[str, Any]:
    return {"error": {"err_code": code, "description": "no"}}


def test_refusals_are_told_apart() -> None:
    for code, kind in ((10071, EndMoved), (10047, EngineFull), (10077, EngineUnavailable)):
        answer = message(json.dumps(error(code)).encode())
        with pytest.raises(kind, match=str(code)):
            run(engine(answer).append(Draft(1, 512, "m", b"x"), 7))
    with pytest.raises(EngineUnavailable):
        run(engine(error(10077)).end())
    with pytest.raises(EngineUnavailable):
        run(engine(error(10077)).delete([1]))
    with pytest.raises(EngineUnavailable):
        run(JetStreamEngine.open(cast(NatsLink, Script(error(10077))), "test"))
    with pytest.raises(EngineUnavailable):  # it is not there, and cannot be made
        run(JetStreamEngine.open(cast(NatsLink, Script(error(10059), error(10077))), "test"))
    with pytest.raises(EngineUnavailable, match="refuses to read"):
        run(engine([message(Status="408")]).read(0))


def test_answers_that_make_no_sense() -> None:
    for found in ({"stream": "other", "seq": 8}, {"stream": "tstreams-test", "seq": 7}):
        with pytest.raises(EngineUnavailable, match="makes no sense"):
            run(engine(message(json.dumps(found).encode())).append(Draft(1, 512, "m", b"x"), 7))
    with pytest.raises(EngineUnfit, match="has emptied"):
        run(engine({"state": {"messages": 0, "last_seq": 9}}).end())
    with pytest.raises(EngineUnfit, match="larger than JetStream takes"):
        run(engine().append(Draft(1, 512, "m", bytes(1024 * 1024 + 1)), 7))
    with pytest.raises(EngineUnfit, match="not the whole"):
        run(engine([part(1, 1, 2), part(3, 2, 2), END]).read(0))


def test_an_entry_that_a_server_has_half_of_is_not_there_yet() -> None:
    assert run(engine([part(1, 1, 2), END], [END]).read(0)) == []
    (whole,) = run(engine([part(1, 1, 2), END], [part(2, 2, 2), END]).read(0))
    assert (whole.place, whole.data) == (2, b"xx")
    (first,) = run(engine([part(1), part(2, 1, 2), END]).read(0))  # the second is read later
    assert first.place == 1
    (left,) = run(engine([part(2, 2, 2), END], [part(3), END]).read(1))  # its beginning is deleted
    assert left.place == 3


def test_what_is_looked_for_and_not_found() -> None:
    assert run(engine(message(Status="404")).find(1, 512)) is None
    assert run(engine(part(1), message(Status="404")).find(1, 1024)) is None
    assert run(engine(part(1), part(3), message(Status="404")).find(1, 1024)) is None
    assert run(engine(part(1), part(1), part(1)).find(1, 1024)) is None
    assert run(engine(part(3), part(3), part(3)).find(1, 0)) is None
    assert run(engine(message(Status="404")).last(1)) is None


def test_who_is_told_of_what_nobody_has_yet_is_woken_again() -> None:
    async def follow() -> None:
        link = Script([END])
        follower = JetStreamEngine(cast(NatsLink, link), "test")
        async with follower.watch() as changed:
            link.told(message(Nats_Sequence="1"))  # somebody else's: it wakes nobody
            assert not changed.is_set()
            link.told(part(2))
            assert changed.is_set()
            changed.clear()
            assert await follower.read(0) == []  # 1 did not come, and whoever is asked has it not
            await asyncio.wait_for(changed.wait(), 20)
            assert [it.place for it in await follower.read(1)] == [2]
            changed.clear()
            link.told(part(3))
            link.told(part(4))
            changed.clear()
            assert [it.place for it in await follower.read(2, 1)] == [3]
            assert changed.is_set()  # there is more
        changed.clear()
        link.told(part(5))
        assert not changed.is_set()

    run(follow())
