"""Token shards on disk, the plan of which pairs make which batch, and packed batches; only batch.py needs torch."""
