"""The rules of a shard as a pure state machine: no I/O, no clock, no threads."""
