"""Makes a plan of a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.simulation.system.plan import Deed, Fault, Plan, StreamPlan

DAY_MS = 86_400_000
SHORT_MS = 8_000
"""The ttl of a stream whose data dies while the run goes on."""


_ROLES: dict[str, list[tuple[int, str, Sequence[str]]]] = {
    "writer": [
        (6, "instant", ("",)),
        (3, "window", ("",)),
        (8, "transaction", ("checkpoint", "checkpoint", "cancel", "leave", "late")),
        (4, "several", ("checkpoint", "cancel", "late")),
        (1, "renew", ("",)),
    ],
    "rival": [
        (4, "instant", ("",)),
        (5, "transaction", ("checkpoint", "checkpoint", "leave")),
        (3, "renew", ("",)),
    ],
    "reader": [
        (10, "read", ("", "", "all")),
        (4, "save", ("",)),
        (3, "look", ("last", "by-id", "between")),
        (2, "resume", ("",)),
        (1, "rewind", ("",)),
    ],
    "processor": [
        (12, "pass-on", ("checkpoint", "checkpoint", "checkpoint", "cancel", "late")),
        (1, "resume", ("",)),
    ],
    "subscriber": [
        (6, "listen", ("save", "save", "")),
        (1, "resume", ("",)),
    ],
    "coordinator": [(6, "step", ("commit", "commit", "cancel"))],
    "keeper": [
        (2, "purge", ("",)),
        (2, "alter", ("",)),
        (3, "make", ("",)),
        (2, "delete", ("",)),
        (3, "instant-there", ("",)),
        (2, "read-there", ("",)),
    ],
}
"""By role: how often it does what, and how."""

_FAULTS: list[tuple[int, str, bool]] = [
    (4, "kill", False),
    (6, "cut-power", False),
    (2, "restart", False),
    (2, "stop", True),
    (3, "cut-off", True),
    (2, "cut-from", True),
    (2, "cut-to", True),
    (2, "reset", True),
    (8, "lose-answer", True),
    (2, "slow-network", True),
    (1, "slow-disk", False),
    (2, "fail-syncs", False),
    (2, "fill", False),
    (2, "fill-suddenly", False),
    (2, "set-clock", False),
    (3, "kill-client", True),
]
"""How often, what, and whether it happens to a client (or to the server too)."""

_AT_ONCE = frozenset({"reset", "lose-answer", "set-clock"})
"""What needs no time, and cannot be taken back."""

_LONG_MS = (100, 100, 700, 700, 2_500, 8_000)


def make_plan(seed: int, steps: int = 120, shards: int = 1) -> Plan:
    """The plan of a seed: so many deeds, of a handful of clients, and some faults."""
    rng = random.Random(f"{seed}/plan")
    short = rng.random() < 0.4
    streams = [
        StreamPlan("a", rng.choice((1, 2, 3)), DAY_MS),
        StreamPlan("b", rng.choice((1, 2)), SHORT_MS if short else DAY_MS),
    ]
    deeds = list(_deeds(rng, steps, streams))
    count = rng.choice((0, 3, 6, 9, 12, 16))
    faults = sorted((_fault(rng, deeds) for _ in range(count)), key=lambda it: it.deed)
    return Plan(seed, streams, deeds, faults, rng.random() < 0.3, shards)


def _deeds(rng: random.Random, steps: int, streams: list[StreamPlan]) -> list[Deed]:
    roles = ["writer", "reader"]
    roles += rng.choices(list(_ROLES), [3, 2, 2, 3, 2, 2, 1], k=rng.choice((1, 2, 3, 4)))
    if "rival" in roles:
        roles.append("rival")
    names = [f"{role}{number}" for number, role in enumerate(roles)]
    busy = rng.choice((5, 60, 300))
    found = []
    for number in range(1, steps + 1):
        at = rng.randrange(len(roles))
        role, client = roles[at], names[at]
        weights = [weight for weight, _, _ in _ROLES[role]]
        _, kind, ways = rng.choices(_ROLES[role], weights)[0]
        stream = rng.choice(streams)
        agent = "rival" if role == "rival" else client
        if role in ("processor", "subscriber"):
            stream = streams[0]
        found.append(
            Deed(
                number,
                client,
                kind,
                "temporary" if role == "keeper" and kind not in ("purge", "alter") else stream.name,
                agent,
                rng.randrange(stream.partitions),
                rng.choice((1, 1, 2, 3, 5)),
                rng.choice(ways),
                int(rng.expovariate(1 / busy)) + (rng.random() < 0.005) * 5_000,
            )
        )
    return found


def _fault(rng: random.Random, deeds: list[Deed]) -> Fault:
    _, kind, of_clients = rng.choices(_FAULTS, [it[0] for it in _FAULTS])[0]
    deed = rng.choice(deeds)
    who = "server"
    if of_clients:
        who = deed.client if rng.random() < 0.6 else rng.choice(deeds).client
    if kind == "stop" and rng.random() < 0.3:
        who = "server"
    for_ms = rng.choice(_LONG_MS)
    if kind in ("stop", "cut-off") and rng.random() < 0.15:
        for_ms = 45_000  # longer than a session
    count = {
        "cut-power": rng.randrange(16),
        "set-clock": rng.choice((-60_000, -500, 700, 3_000)),
        "lose-answer": rng.randrange(6),
    }
    delay_ms = rng.choice((0, 0, 1, 1, 2, 5, 20, 200))
    if kind in _AT_ONCE:
        for_ms = 0
    return Fault(deed.number, kind, who, delay_ms, for_ms, count.get(kind, 0))
