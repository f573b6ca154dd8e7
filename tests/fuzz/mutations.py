"""Inputs for a target: those of its corpus, changed here and there, and any bytes at all."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from tests.fuzz.targets import CORPUS

INTERESTING = (0, 1, 0x7F, 0x80, 0xC1, 0xDC, 0xDD, 0xDF, 0xFF)
WORDS = (
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff",
    b"\0\0\0\x80",
    b"9" * 400,
    "²".encode(),
    b"\xed\xa0\x80",
)


@cache
def corpus_of(name: str) -> dict[str, bytes]:
    """The inputs that are kept for a target, by the names of their files."""
    return {it.name: it.read_bytes() for it in sorted((CORPUS / name).iterdir())}


@st.composite
def mutated(draw: st.DrawFn, name: str) -> bytes:
    """One of the corpus, with a few changes."""
    data = bytearray(draw(st.sampled_from(list(corpus_of(name).values())))[:2000])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + draw(st.integers(1, 8))]
            case 2:
                data[at : at + 1] = bytes((draw(st.sampled_from(INTERESTING)),))
            case 3:
                word = draw(st.sampled_from(WORDS))
                data[at : at + draw(st.sampled_from((0, len(word))))] = word
            case _:
                data[at:at] = draw(st.binary(max_size=8))
    return bytes(data)


def inputs(name: str) -> st.SearchStrategy[bytes]:
    """Inputs for a target."""
    return st.one_of(mutated(name), mutated(name), st.binary(max_size=300))
