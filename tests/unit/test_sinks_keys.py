"""Keys of items: they sort as the stream does, and can be read back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstreams import BadRequest
from tstreams.sinks import ItemKey, keyed_items

NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
KEYS = st.builds(
    ItemKey, NAMES, st.integers(0, 65_535), st.integers(0, 2**63 - 1), st.integers(0, 10**10)
)


@given(KEYS)
def test_back_and_forth(key: ItemKey) -> None:
    assert ItemKey.parse(str(key)) == key
    assert ItemKey.parse(bytes(key)) == key


@given(st.lists(KEYS))
def test_bytes_sort_as_keys_do(keys: list[ItemKey]) -> None:
    assert sorted(keys, key=bytes) == sorted(keys)


@given(NAMES, st.lists(KEYS))
def test_text_sorts_as_keys_do_inside_a_stream(name: str, keys: list[ItemKey]) -> None:
    keys = [replace(key, stream=name) for key in keys]
    assert sorted(keys, key=str) == sorted(keys)


def test_how_they_look() -> None:
    key = ItemKey("clicks", 3, 173_167_891_234_500_007, 42)
    assert str(key) == "clicks:00003:0173167891234500007:00000000042"
    assert bytes(key).startswith(b"clicks\0\0\3")
    assert len(bytes(key)) == 6 + 1 + 18


@pytest.mark.parametrize(
    "text",
    [
        "",
        "clicks",
        "clicks:3:5:7",
        "clicks:00003:0173167891234500007:42",
        "clicks:00003:0173167891234500007:-0000000042",
        "clicks:99999:0173167891234500007:00000000042",
        ":00003:0173167891234500007:00000000042",
        "clicks:00003:٠١٧٣١٦٧٨٩١٢٣٤٥٠٠٠٠٧:00000000042",
        b"",
        b"clicks",
        b"clicks" + bytes(18),
        b"\xff\xfe" + bytes(19),
        bytes(19),
        None,
        5,
    ],
)
def test_what_is_no_key(text: Any) -> None:
    with pytest.raises(BadRequest, match="no key of an item"):
        ItemKey.parse(text)


@pytest.mark.parametrize(
    "key",
    [
        ItemKey("", 0, 0, 0),
        ItemKey("a\0b", 0, 0, 0),
        ItemKey("a", 65_536, 0, 0),
        ItemKey("a", 0, -1, 0),
        ItemKey("a", 0, 0, 10**11),
        ItemKey("a", 0, 0, "1"),  # type: ignore[arg-type]
    ],
)
def test_keys_out_of_bounds(key: ItemKey) -> None:
    with pytest.raises(BadRequest):
        str(key)
    with pytest.raises(BadRequest):
        bytes(key)


@dataclass
class Read:
    stream: str = "clicks"
    partition: int = 2
    id: int = 77
    items: list[bytes] = field(default_factory=lambda: [b"a", b"b"])


def test_items_with_their_keys() -> None:
    assert list(keyed_items(Read())) == [
        (ItemKey("clicks", 2, 77, 0), b"a"),
        (ItemKey("clicks", 2, 77, 1), b"b"),
    ]
