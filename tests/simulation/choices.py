"""What a simulation chooses from at each step."""

from __future__ import annotations

from hypothesis import strategies as st

from tstreams.protocol import AlterStream, CreateStream, DeleteStream, PurgeStream

PICK = st.integers(0, 10**6)
SEED = st.integers(0, 2**32)
STREAMS = st.sampled_from("aabbc")
STREAM_CHANGES = st.sampled_from([CreateStream, AlterStream, DeleteStream, PurgeStream])
TTLS_MS = st.sampled_from([2_000, 20_000, 10**9])
LEASES_MS = st.sampled_from([500, 5_000, 60_000])
STEPS = st.sampled_from([0, 1, 1, 1, 2])
"""Which step, counted from the one that was committed last."""
REPLACED = st.sampled_from([[], [], [], ["a"], ["b", "a"]])
SOME_TIME_MS = st.sampled_from([1, 400, 1_000, 3_000, 11_000, 16 * 60 * 1000])
SIZES = st.lists(st.integers(2, 400), min_size=1, max_size=3)
AGAIN = st.none() | st.integers(0, 6)
"""After how many steps of the recovery the power fails once more."""
MORE = st.sampled_from([False, False, True])
"""Whether the turn goes on: then several requests become durable together."""
HOUSEKEEPING = st.sampled_from(
    ["begin_flush", "finish_flush", "roll", "prepare", "relax", "compact"]
)
