"""Digests of items, that can be put together: of what was sent, bit by bit, and of what was read, at once."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

Content: TypeAlias = tuple[int, int]
"""How many items, and the digest of them in their order."""

NOTHING: Content = (0, 0)
_PRIME = 2**61 - 1
_BASE = 0x1F3D5B79_2A4C6E81 % _PRIME


def content_of(items: Iterable[bytes]) -> Content:
    """Of some items."""
    count = digest = 0
    for item in items:
        one = int.from_bytes(blake2b(item, digest_size=8).digest(), "big") % _PRIME
        digest = (digest * _BASE + one) % _PRIME
        count += 1
    return count, digest


def joined(first: Content, then: Content) -> Content:
    """Of the items of both, one behind the other."""
    return first[0] + then[0], (first[1] * pow(_BASE, then[0], _PRIME) + then[1]) % _PRIME
