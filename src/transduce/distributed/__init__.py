"""Training one model with several processes: collective operations, sharding, signals."""
