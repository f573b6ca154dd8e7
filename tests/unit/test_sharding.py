"""Where things are: these values are the layout of every cluster, and never change."""

from __future__ import annotations

import pytest

from tstreams.sharding import (
    giver_of,
    home_of,
    job_home,
    partitions_in,
    shard_of,
    shards_of,
)

GOLDEN = {
    "clicks": (1, 0, 17, 209),
    "a": (1, 1, 19, 819),
    "orders/eu": (1, 0, 7, 999),
    "Möbius": (1, 1, 27, 955),
    "流": (1, 2, 27, 795),
    "x" * 255: (1, 1, 3, 483),
}
"""Names, and their homes among 2, 3, 32 and 1024 shards."""


@pytest.mark.parametrize("name", GOLDEN)
def test_a_name_has_its_home_for_ever(name: str) -> None:
    assert tuple(home_of(name, shards) for shards in (2, 3, 32, 1024)) == GOLDEN[name]
    assert tuple(job_home(name, shards) for shards in (2, 3, 32, 1024)) == GOLDEN[name]
    assert home_of(name, 1) == job_home(name, 1) == 0


def test_partitions_go_round_the_shards_from_the_home_on() -> None:
    home = home_of("clicks", 3)
    assert [shard_of("clicks", it, 3) for it in range(7)] == [(home + it) % 3 for it in range(7)]


def test_the_shards_of_a_stream_are_listed_once_with_the_home_first() -> None:
    home = home_of("clicks", 4)
    assert shards_of("clicks", 1, 4) == [home]
    assert shards_of("clicks", 3, 4) == [home, (home + 1) % 4, (home + 2) % 4]
    assert shards_of("clicks", 65_536, 4) == [(home + it) % 4 for it in range(4)]
    assert shards_of("clicks", 65_536, 1) == [0]


@pytest.mark.parametrize("partitions", [1, 2, 5, 11])
@pytest.mark.parametrize("shards", [1, 2, 4])
def test_each_partition_is_in_one_shard(partitions: int, shards: int) -> None:
    found = {
        partition: shard
        for shard in range(shards)
        for partition in partitions_in("clicks", partitions, shard, shards)
    }
    assert found == {it: shard_of("clicks", it, shards) for it in range(partitions)}


def test_a_number_says_which_shard_gave_it_out() -> None:
    assert giver_of(5) == 0
    assert giver_of((3 << 48) + 1) == 3
