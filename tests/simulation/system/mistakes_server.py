"""Mistakes of the server: its log, its index, its rules, and what it shows to readers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.system.mistakes import Patches, mistake
from tstreams.core.rules import Rules
from tstreams.core.shard import Shard as Core
from tstreams.core.state import State
from tstreams.errors import Unavailable
from tstreams.index.applier import Applier
from tstreams.index.index import Index
from tstreams.ledger.format import GROUP_OVERHEAD_BYTES, Head, group_at, sectors_up
from tstreams.ledger.ledgers import Ledgers
from tstreams.ledger.local import LocalLog
from tstreams.ledger.port import DiskFull
from tstreams.server import subscriptions, visible
from tstreams.server.compactor import Compactor
from tstreams.server.contents import Contents
from tstreams.server.housekeeping import Housekeeping
from tstreams.server.shard import Shard
from tstreams.server.turns import Turns

# The log.


@mistake("no-sync", "G1", "groups are written and not synced")
def _(patches: Patches) -> None:
    patches.around(LocalLog, "_sync", lambda original, log, file, ledger: None)


@mistake("ignore-failed-sync", "G8", "a sync that failed is taken for one that worked")
def _(patches: Patches) -> None:
    def sync(original: Any, log: Any, file: Any, ledger: int) -> None:
        try:
            file.sync()
        except OSError:
            return

    patches.around(LocalLog, "_sync", sync)


@mistake("keep-torn-tail", "G8", "after a crash the last group is taken without its checksums")
def _(patches: Patches) -> None:
    def group_end(original: Any, ledgers: Any, ledger: Any, at: int) -> int | None:
        file = ledgers.file(ledger)
        found = group_at(ledger.head.ledger_id, at, file.read(at, GROUP_OVERHEAD_BYTES))
        return None if found is None else sectors_up(at + GROUP_OVERHEAD_BYTES + found[0])

    patches.around(Ledgers, "group_end", group_end)


@mistake("write-over-the-end", "G1", "a group begins a sector before the end of the log")
def _(patches: Patches) -> None:
    def append(original: Any, log: Any, records: Any, now_ms: int) -> Any:
        current = log._ledgers.list[-1]
        if current.size > 4096:
            current.size -= 512
        return original(log, records, now_ms)

    patches.around(LocalLog, "append", append)


@mistake("skip-last-group", "G1", "the last group of the log is left out when it is replayed")
def _(patches: Patches) -> None:
    def scan(original: Any, log: Any, start: int, *stop: int) -> Any:
        groups = list(original(log, start, *stop))
        return iter(groups[:-1] if log._ledgers.current is None else groups)

    patches.around(LocalLog, "scan", scan)


@mistake("forget-length", "G8", "a ledger's head does not say how long the one before it was")
def _(patches: Patches) -> None:
    def encode(original: Any, head: Any) -> bytes:
        return bytes(original(replace(head, previous_size=min(head.previous_size, 512))))

    patches.around(Head, "encode", encode)


# The end of a turn.


@mistake("answer-at-once", "G1", "answers go out before what they say is durable")
def _(patches: Patches) -> None:
    def answer(original: Any, turns: Any, request: Any, it: Any) -> Any:
        pending, turns.pending = turns.pending, []
        try:
            return original(turns, request, it)
        finally:
            turns.pending = pending

    patches.around(Turns, "answer", answer)


@mistake("keep-refused-turn", "G8", "the core is not taken back when there was no room for a turn")
def _(patches: Patches) -> None:
    def failed(original: Any, shard: Any, error: Exception) -> Any:
        if not isinstance(error, DiskFull):
            return original(shard, error)
        shard.condition.note_full(error.message)
        return Unavailable(shard.full)

    patches.around(Shard, "_write_failed", failed)


# Sessions, names and ids.


@mistake("no-duplicate-filter", "G5", "a request that comes again takes effect again")
def _(patches: Patches) -> None:
    def handle(original: Any, core: Any, now_ms: int, request: Any, *rest: Any) -> Any:
        session = core.state.sessions.get(request.session)
        if session is not None and request.sequence <= session.last:
            session.last = request.sequence - 1
        return original(core, now_ms, request, *rest)

    patches.around(Core, "handle", handle)


@mistake("forget-answers", "G5", "after a restart the requests of the last minutes are not known")
def _(patches: Patches) -> None:
    patches.around(Core, "replay", lambda original, core, now_ms, it: core.apply(now_ms, it))


@mistake("no-epoch-check", "G6", "an agent that lost its name goes on")
def _(patches: Patches) -> None:
    known: dict[int, Any] = {}

    def remember(original: Any, state: Any, agent: Any) -> None:
        known[agent.id] = agent
        original(state, agent)

    def find(original: Any, rules: Any, agent_id: int) -> Any:
        return known.get(agent_id) or original(rules, agent_id)

    patches.around(State, "remember_agent", remember)
    patches.around(Rules, "agent", find)


@mistake("forget-last-id", "G3", "after a restart ids begin with the time of day")
def _(patches: Patches) -> None:
    def make(original: Any, contents: Any) -> None:
        contents.index.last_id = 0
        original(contents)

    patches.around(Contents, "make_core", make)


@mistake("open-for-ever", "G3", "leases do not run out")
def _(patches: Patches) -> None:
    patches.around(State, "take_expired", lambda original, state, now_ms: [])


# What is visible.


@mistake("frontier-passes-open", "G3", "readers see past the first open transaction")
def _(patches: Patches) -> None:
    def frontier(original: Any, state: Any, stream: int, partition: int) -> int | None:
        head = state.heads.get((stream, partition))
        return None if not head or len(head) < 2 else list(head)[1]

    patches.around(State, "frontier", frontier)


@mistake(
    "frontier-off-by-one", "G3", "readers stop behind the first open transaction, not before it"
)
def _(patches: Patches) -> None:
    def frontier(original: Any, state: Any, stream: int, partition: int) -> int | None:
        found = original(state, stream, partition)
        return None if found is None else int(found) + 10_000_000_000

    patches.around(State, "frontier", frontier)


@mistake("show-cancelled", "G2", "a cancelled transaction becomes visible")
def _(patches: Patches) -> None:
    def ended(original: Any, applier: Any, record: Any, position: int, size: int) -> None:
        applier.show(record.transactions)

    patches.around(Applier, "_ended", ended)


@mistake("forget-ttl", "G7", "what is dead is shown until it is swept")
def _(patches: Patches) -> None:
    patches.around(visible, "floor_of", lambda original, purged, ttl_ms, now_ms: purged)


@mistake("die-early", "G7", "transactions die at half of their ttl")
def _(patches: Patches) -> None:
    def floor_of(original: Any, purged: int, ttl_ms: int, now_ms: int) -> int:
        return int(original(purged, ttl_ms // 2, now_ms))

    patches.around(visible, "floor_of", floor_of)


@mistake("forget-purge", "G7", "what was purged comes back with a restart")
def _(patches: Patches) -> None:
    patches.around(Applier, "_stream_purged", lambda original, *arguments: None)


@mistake(
    "push-past-open", "G3", "subscribers are sent what is new although something before it is open"
)
def _(patches: Patches) -> None:
    def follow(original: Any, it: visible.Visible, core: Any) -> None:
        original(it, core)
        it.heads = {}

    patches.around(visible.Visible, "follow", follow)


@mistake("no-wake", "G3", "readers that wait are not told of what was committed")
def _(patches: Patches) -> None:
    patches.around(subscriptions.Subscription, "stir", lambda original, it, partitions: None)


# The index.


@mistake("lose-offset", "G4", "of a group's offsets the last is not saved")
def _(patches: Patches) -> None:
    def committed(original: Any, applier: Any, record: Any, position: int, size: int) -> None:
        applier.show(record.transactions)
        applier.drop_open(record.empty)
        applier.move(record.positions[:-1] if record.transactions else record.positions)

    patches.around(Applier, "_committed", committed)


@mistake("lose-member", "G4", "of a group's transactions the last is dropped")
def _(patches: Patches) -> None:
    def show(original: Any, applier: Any, transactions: Any) -> None:
        original(applier, transactions[:-1] if len(transactions) > 1 else transactions)
        applier.drop_open(transactions[-1:] if len(transactions) > 1 else [])

    patches.around(Applier, "show", show)


@mistake("lose-batch", "G2", "the second batch of a transaction takes the place of the first")
def _(patches: Patches) -> None:
    def sent(original: Any, applier: Any, record: Any, position: int, size: int) -> None:
        it = applier._open[record.transaction]
        if it.places:
            old = it.places.pop()
            applier._live.remove(old.position, old.size)
        original(applier, record, position, size)

    patches.around(Applier, "_items_sent", sent)


@mistake(
    "position-behind", "G5", "the index stores the position of the group before with each group"
)
def _(patches: Patches) -> None:
    def apply(original: Any, index: Any, entries: Any, end: int, *rest: Any) -> None:
        before = index.applied
        index.applier.apply(entries, before, *rest)
        index.applied, index.last_id, index.last_number = end, rest[0], rest[1]

    patches.around(Index, "apply", apply)


@mistake("forget-step", "G5", "which step of a job was committed last is not stored")
def _(patches: Patches) -> None:
    def done(original: Any, applier: Any, record: Any, position: int, size: int) -> None:
        applier.show(record.transactions)
        applier.drop_open(record.empty)
        applier.drop_open(record.dropped)

    patches.around(Applier, "_step_committed", done)


# Housekeeping.


@mistake("trim-alive", "G7", "ledgers are deleted in which something lives")
def _(patches: Patches) -> None:
    def dead(original: Any, keeper: Any) -> list[int]:
        return [it.id for it in keeper._shard.log.ledgers() if it.closed][:-1]

    patches.around(Housekeeping, "_dead_ledgers", dead)


@mistake(
    "trim-before-flush",
    "G7",
    "ledgers are deleted before the index that needs them no more is durable",
)
def _(patches: Patches) -> None:
    def begin(original: Any, keeper: Any, now_ms: int) -> None:
        current = keeper._shard.log.ledgers()[-1].id
        keeper._trim([it for it in keeper._dead if it < current])
        original(keeper, now_ms)

    patches.around(Housekeeping, "_begin_flush", begin)


@mistake(
    "move-without-trace", "G7", "a batch that is copied forward is still looked for where it was"
)
def _(patches: Patches) -> None:
    def moved(original: Any, applier: Any, record: Any, position: int, size: int) -> None:
        put, applier.put = applier.put, lambda key, value: None
        try:
            original(applier, record, position, size)
        finally:
            applier.put = put

    patches.around(Applier, "_moved", moved)


@mistake("copy-nothing", "G7", "a ledger counts as copied, and nothing was copied")
def _(patches: Patches) -> None:
    def move(original: Any, compactor: Any, position: int, data: Any) -> None:
        live = compactor._shard.index.live
        if compactor._live_bytes:
            live.remove(position, min(len(data), live.live(position >> 40)))

    patches.around(Compactor, "_move_if_alive", move)
