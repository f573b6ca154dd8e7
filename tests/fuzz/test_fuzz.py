"""Every decoder under Hypothesis, and on the corpus of what was found before."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.mutations import corpus_of, inputs
from tests.fuzz.targets import BYTES_MAX, CORPUS, TARGETS

EXAMPLES = 60


def test_every_target_has_a_corpus_and_nothing_else_has_one() -> None:
    assert {it.name for it in CORPUS.iterdir()} == set(TARGETS)
    assert all(corpus_of(name) for name in TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_passes_in_bounded_memory(name: str) -> None:
    for file, data in corpus_of(name).items():
        tracemalloc.start()
        try:
            TARGETS[name](data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= BYTES_MAX, f"{file} took {peak} bytes"


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_returns_or_raises_its_own_error(name: str) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(inputs(name))
    def run(data: bytes) -> None:
        TARGETS[name](data)

    run()


def test_the_corpus_stays_small() -> None:
    assert sum(it.stat().st_size for it in CORPUS.rglob("*") if it.is_file()) < 400_000


def test_a_target_lets_nothing_else_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: an untyped error is not swallowed."""

    def broken(_: bytes) -> object:
        raise ValueError("untyped")

    monkeypatch.setattr("tests.fuzz.targets.VALUES", [broken])
    with pytest.raises(ValueError, match="untyped"):
        TARGETS["index"](b"\0")
