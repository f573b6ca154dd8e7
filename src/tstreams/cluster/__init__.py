"""The cluster: who is there, who leads which shard, and where shards should be."""
