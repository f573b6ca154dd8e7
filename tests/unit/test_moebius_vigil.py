"""When a client pings, and what it makes of silence."""

from __future__ import annotations

import itertools

from moebius import Limits
from moebius.client.vigil import Findings, Vigil

LIMITS = Limits(heartbeat_s=5.0, heartbeats_missed_max=3, silence_s=1.0)
NOTHING, PING, DEAD = Findings(), Findings(ping=True), Findings(dead=True)


class Watcher:
    """Looks again and again."""

    def __init__(self, *, eager: bool = True) -> None:
        self.vigil = Vigil(LIMITS, eager=eager)

    def is_silent(self) -> bool:
        return self.vigil.silent

    def look(
        self, *, answers: bool = False, pongs: bool = False, busy: bool = True, late_s: float = 0.0
    ) -> Findings:
        return self.vigil.look(
            self.vigil.pace_s + late_s, touched=answers or pongs, moved=answers, busy=busy
        )


def test_a_server_that_answers_is_pinged_with_every_heartbeat_and_no_more() -> None:
    watcher = Watcher()
    found = [watcher.look(answers=True) for _ in range(15)]
    assert [at for at, it in enumerate(found, 1) if it == PING] == [5, 10, 15]
    assert not watcher.is_silent()


def test_a_server_that_stops_is_found_out_with_the_third_look() -> None:
    watcher = Watcher()
    watcher.look(answers=True)
    assert watcher.look() == PING
    assert not watcher.is_silent()  # it may have nothing to say
    watcher.look()
    assert watcher.is_silent()
    watcher.look(busy=False)  # what was under way has gone elsewhere: that is no sign of life
    assert watcher.is_silent()
    watcher.look(pongs=True, busy=False)
    assert not watcher.is_silent()


def test_who_waits_for_long_pings_less_and_less_often() -> None:
    watcher = Watcher()
    found = [watcher.look(pongs=it % 2 == 1) for it in range(60)]  # a pong after each ping
    pings = [at for at, it in enumerate(found, 1) if it == PING]
    assert not watcher.is_silent()
    assert pings[0] == 1
    pauses = [later - sooner for sooner, later in itertools.pairwise(pings)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5
    watcher.look(answers=True)
    assert watcher.look() == PING  # something came: it is looked at closely again


def test_an_idle_client_does_not_care_until_the_link_is_given_up() -> None:
    watcher = Watcher()
    found = [watcher.look(busy=False) for _ in range(15)]
    assert [at for at, it in enumerate(found, 1) if it == PING] == [5, 10]
    assert not watcher.is_silent()
    assert found[-1] == DEAD


def test_a_client_that_stood_still_itself_blames_nobody() -> None:
    watcher = Watcher()
    watcher.look(answers=True)
    assert watcher.look() == PING
    assert watcher.look(late_s=600.0) != DEAD
    assert not watcher.is_silent()
    watcher.look()
    assert watcher.is_silent()


def test_without_anybody_who_wants_to_know_there_is_one_look_with_each_heartbeat() -> None:
    watcher = Watcher(eager=False)
    assert watcher.vigil.pace_s == 5.0
    assert [watcher.look() for _ in range(3)] == [PING, PING, DEAD]
    assert not watcher.is_silent()
