"""Several processes that train one model: sums over all, sharding, signals."""
