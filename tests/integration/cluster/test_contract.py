"""What every coordination does, whether it is of one machine or of many."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import msgspec
import pytest

from tstreams.cluster import Changes, Coordination, Leader, Node, Outdated, SessionState
from tstreams.cluster.coordination import new_cluster
from tstreams.cluster.intentions import Intentions
from tstreams.errors import AlreadyExists, BadRequest, InvalidState, NotFound

from .conftest import eventually
from .opening import Opener, states_of

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("zookeeper")]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both loops."""
    return "asyncio", {"use_uvloop": request.param}


NODE = Node(id="n1", addresses=("tcp://127.0.0.1:7070",), http="http://127.0.0.1:7080")


async def test_a_cluster_is_created_once(either: Opener) -> None:
    made = await either.create(shards=4)
    with pytest.raises(AlreadyExists):
        await either.create(shards=8)
    assert (await either.open(NODE)).cluster == made


async def test_there_is_no_cluster(either: Opener) -> None:
    coordination = either.make(NODE)
    with pytest.raises(NotFound, match="create one"):
        await coordination.start()


@pytest.mark.parametrize("name", ["", "a/b", ".", "x" * 65, "a b", "ü"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(BadRequest):
        new_cluster(name)


@pytest.mark.parametrize("shards", [0, -1, 4097])
def test_numbers_of_shards_that_cannot_be(shards: int) -> None:
    with pytest.raises(BadRequest):
        new_cluster("ok", shards=shards)


async def test_it_is_started_once(one: Coordination) -> None:
    assert one.session is SessionState.CONNECTED
    assert one.alive()
    with pytest.raises(InvalidState):
        await one.start()


async def test_a_node_tells_of_itself(one: Coordination) -> None:
    watch = one.watch()
    assert one.view.nodes["n1"].addresses == ("tcp://127.0.0.1:7070",)
    await one.update(load=0.5, shard_loads={2: 7.0})
    await one.update(draining=True)
    async for changes in watch:
        if changes.nodes and one.view.nodes["n1"].draining:
            break
    assert one.view.nodes["n1"] == Node(
        id="n1",
        addresses=("tcp://127.0.0.1:7070",),
        load=0.5,
        shard_loads={2: 7.0},
        draining=True,
    )


async def test_epochs_rise(one: Coordination) -> None:
    assert one.leads(1) is None
    first = await one.lead(1)
    assert first == 1
    assert one.leads(1) == 1
    assert one.view.leaders[1] == Leader("n1", 1)
    assert await one.lead(1) == 1  # it leads already
    await one.release(1)
    assert one.leads(1) is None
    await eventually(lambda: 1 not in one.view.leaders)
    assert await one.lead(1) == 2
    await one.release(1)
    assert await one.lead(1, above=41) == 42
    await one.release(1)
    assert await one.lead(1, above=7) == 43
    assert await one.lead(2) == 1  # each shard counts for itself


async def test_what_is_not_led_can_be_released(one: Coordination) -> None:
    await one.release(3)
    assert one.view.leaders == {}


@pytest.mark.parametrize("shard", [-1, 4])
async def test_a_shard_that_does_not_exist(one: Coordination, shard: int) -> None:
    with pytest.raises(BadRequest, match="no shard"):
        await one.lead(shard)
    with pytest.raises(BadRequest, match="no shard"):
        await one.release(shard)


async def test_changes_of_leaders_are_told(one: Coordination) -> None:
    watch = one.watch()
    await one.lead(0)
    await one.lead(2)
    seen: set[int] = set()
    async for changes in watch:
        seen |= changes.leaders
        if seen == {0, 2}:
            break


async def test_a_slow_reader_gets_everything_at_once(one: Coordination) -> None:
    watch = one.watch()
    for shard in range(4):
        await one.lead(shard)
    await one.update(load=0.9)
    await eventually(lambda: one.view.nodes["n1"].load == 0.9)
    changes = await anext(watch)
    assert changes.leaders == {0, 1, 2, 3}
    assert changes.nodes
    watch.close()
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


async def test_only_the_director_places_and_only_what_it_has_seen(one: Coordination) -> None:
    places = [["n1"], ["n1"], [], ["n1", "n2"]]
    version = one.view.placement.version
    with pytest.raises(InvalidState, match="does not direct"):
        await one.place(places, version=version)
    await one.stand()
    await eventually(lambda: one.directing)
    assert one.view.director == "n1"
    made = await one.place(places, version=version)
    assert made == version + 1
    assert one.view.placement.version == made
    assert one.view.placement.shards == (("n1",), ("n1",), (), ("n1", "n2"))
    with pytest.raises(Outdated):
        await one.place([["n9"]] * 4, version=version)
    with pytest.raises(BadRequest, match="3 shards"):
        await one.place([[]] * 3, version=made)
    with pytest.raises(BadRequest, match="twice"):
        await one.place([["n1", "n1"]] * 4, version=made)
    assert one.view.placement.version == made
    await one.withdraw()
    await eventually(lambda: one.view.director is None)
    assert not one.directing


async def test_settings_change_by_compare_and_set(either: Opener) -> None:
    made = await either.create(shards=4)
    one = await either.open(NODE)
    version = one.view.cluster_version
    wanted = msgspec.structs.replace(made, replicas=5, engine_settings={"sync": True, "n": 3})
    assert await one.reconfigure(wanted, version=version) == version + 1
    await eventually(lambda: one.cluster == wanted)
    assert one.view.cluster_version == version + 1
    with pytest.raises(Outdated):
        await one.reconfigure(made, version=version)
    for changed in (
        msgspec.structs.replace(made, shards=5),
        msgspec.structs.replace(made, id="0" * 16),
    ):
        with pytest.raises(BadRequest, match="never change"):
            await one.reconfigure(changed, version=version + 1)
    await one.close()
    assert (await either.open(NODE)).cluster == wanted


async def test_what_operators_want_changes_by_compare_and_set(one: Coordination) -> None:
    assert one.view.intentions == Intentions()
    first = one.view.intentions_version
    watch = one.watch()
    wanted = Intentions().drain("n1", True).lead({2: "n1"})
    version = await one.intend(wanted, version=first)
    assert version > first
    async for changes in watch:
        if changes.intentions:
            break
    assert (one.view.intentions, one.view.intentions_version) == (wanted, version)
    with pytest.raises(Outdated):
        await one.intend(Intentions(), version=first)
    assert one.view.intentions == wanted


async def test_what_is_told_at_once_is_told_in_order(one: Coordination) -> None:
    await asyncio.gather(*(one.update(holds=[n]) for n in range(10)), one.update(leaving=True))
    await eventually(lambda: one.view.nodes["n1"].leaving)
    assert one.view.nodes["n1"].holds == (9,)


async def test_closing(one: Coordination) -> None:
    states = states_of(one)
    watch = one.watch()
    assert await one.lead(0) == 1
    await one.close()
    await one.close()
    assert states == [SessionState.CLOSED]
    assert one.session is SessionState.CLOSED
    assert not one.alive()
    assert one.leads(0) is None
    with anyio.fail_after(30):
        async for changes in watch:  # what was pending is still told, then it ends
            assert changes != Changes()
    with pytest.raises(InvalidState):
        await one.lead(0)
    with pytest.raises(InvalidState):
        await one.update(load=1.0)


async def test_after_closing_another_can_come(either: Opener) -> None:
    await either.create(shards=4)
    first = await either.open(NODE)
    epoch = await first.lead(0)
    assert epoch is not None
    await first.close()
    second = await either.open(NODE)
    assert 0 not in second.view.leaders
    after = await second.lead(0, above=epoch)  # as the log says
    assert after is not None
    assert after > epoch
