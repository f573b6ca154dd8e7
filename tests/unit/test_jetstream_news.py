"""Messages that came by themselves: what a follower takes of them, and what it has to ask for."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tstreams.ledger.jetstream_parts import News, Part, whole


def part(sequence: int, number: int = 1, count: int = 1, size: int = 10) -> Part:
    return Part(sequence, 1, f"mark-{sequence - number}", 512, number, count, bytes(size))


def sequences(parts: list[Part]) -> list[int]:
    return [it.sequence for it in parts]


def test_what_came_is_taken_in_order_and_once() -> None:
    news = News()
    for sequence in (5, 6, 7):
        news.add(part(sequence))
    assert sequences(news.after(4, 15)) == [5]
    assert sequences(news.after(5, 100)) == [6, 7]
    assert news.after(7, 100) == []


def test_what_did_not_come_is_asked_for() -> None:
    news = News()
    news.add(part(5))
    assert news.after(3, 100) == []  # 4 is missing
    news.add(part(7))  # 6 was lost
    assert news.after(4, 100) == []
    assert sequences(news.after(6, 100)) == [7]


def test_an_entry_of_several_messages_is_taken_whole() -> None:
    news = News()
    news.add(part(1, 1, 2))
    assert news.after(0, 100) == []
    news.add(part(2, 2, 2))
    news.add(part(3, 1, 2))
    assert sequences(news.after(0, 1)) == [1, 2]
    assert news.after(1, 100) == []  # that is no place between two entries
    news.clear()
    assert news.after(2, 100) == []


def test_only_so_much_is_kept() -> None:
    news = News(bytes_max=30)
    for sequence in range(1, 6):
        news.add(part(sequence))
    assert news.after(1, 100) == []
    assert sequences(news.after(2, 100)) == [3, 4, 5]


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    lost=st.sets(st.integers(1, 36)),
    bytes_max=st.integers(1, 60),
)
def test_what_is_taken_is_whole_and_follows_on(
    counts: list[int], lost: set[int], bytes_max: int
) -> None:
    news, sent, ends = News(bytes_max=80), [], [0]
    for count in counts:
        first = ends[-1] + 1
        sent += [part(first + n - 1, n, count) for n in range(1, count + 1)]
        ends.append(ends[-1] + count)
    place = 0
    for one in sent:
        if one.sequence not in lost:
            news.add(one)
        found = news.after(place, bytes_max)
        if found:
            entries = whole(found)
            assert entries[0].before == place
            assert all(a.place == b.before for a, b in itertools.pairwise(entries))
            assert not lost.intersection(sequences(found))
            place = entries[-1].place
        elif one.sequence in ends and one.sequence in lost:
            place = one.sequence  # it was asked for
        assert place in ends
