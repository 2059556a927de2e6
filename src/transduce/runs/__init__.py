"""A training run on disk: folder, checkpoints, averaging, metrics, report."""
