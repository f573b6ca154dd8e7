"""Mistakes between shards: groups and streams that span them. They show with several shards only."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.simulation.system.mistakes import Patches, mistake
from tstreams.core.copying import Copying
from tstreams.core.preparing import Preparing
from tstreams.index.facts import IndexFacts

SHARDS = 3


@mistake("drop-decision", "G4", "a shard drops what was decided to happen", SHARDS)
def _(patches: Patches) -> None:
    def settle(original: Any, preparing: Any, now_ms: int, request: Any) -> Any:
        return original(preparing, now_ms, msgspec.structs.replace(request, committed=False))

    patches.around(Preparing, "settle", settle)


@mistake("forget-prepared", "G4", "a restart forgets what is prepared", SHARDS)
def _(patches: Patches) -> None:
    patches.around(IndexFacts, "prepared", lambda original, facts: [])


@mistake("ignore-home", "G7", "what the home of a stream tells is ignored", SHARDS)
def _(patches: Patches) -> None:
    patches.around(Copying, "tell", lambda original, copying, now_ms, request: ())
