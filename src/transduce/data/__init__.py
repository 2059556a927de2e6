"""Token shards on disk, the plan of which pairs make which batch, and the demo corpus. Needs no torch."""
