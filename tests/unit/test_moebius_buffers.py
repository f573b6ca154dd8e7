"""Buffers for large frames: used again, but never under somebody's eyes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moebius.buffers import Buffers

KIB = 1024


def test_a_buffer_is_used_again_when_nobody_looks_at_it() -> None:
    buffers = Buffers(10)
    first = buffers.large(100 * KIB)
    part = first[5:10].toreadonly()
    held = first.obj
    del first
    assert buffers.large(100 * KIB).obj is not held, "a part of it is looked at"
    del part
    assert buffers.large(90 * KIB).obj is held
    assert len(buffers.large(90 * KIB)) == 90 * KIB
    assert buffers.large(30 * KIB).obj is not held, "a small frame must not hold a large buffer"


def test_little_is_kept() -> None:
    buffers = Buffers(10)
    for size in (KIB, 3 * KIB * KIB):
        made = buffers.large(size)
        again = made.obj
        del made
        assert buffers.large(size).obj is not again
    for size in range(1, 50):
        buffers.large(size * 64 * KIB)
    assert len(buffers._kept) <= 4


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.one_of(st.none(), st.integers(0, 20))), max_size=60)
)
def test_what_is_held_stays_as_it_is(steps: list[tuple[int, int | None]]) -> None:
    """Each step takes a buffer and fills it; some let go of one that was taken before."""
    buffers = Buffers(10)
    held: list[tuple[memoryview, int]] = []
    for number, (size, drop) in enumerate(steps):
        taken = buffers.large(size * KIB)
        taken[:] = bytes([number]) * len(taken)
        held.append((taken[len(taken) // 2 :], number))
        if drop is not None and drop < len(held):
            del held[drop]
        del taken
        for view, filled_with in held:
            assert set(view[:: max(1, len(view) // 7)]) == {filled_with}
