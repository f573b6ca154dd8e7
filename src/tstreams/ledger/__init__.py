"""The log of a shard: an ordered list of ledgers, each append-only and written by one writer."""
