"""Engines run a model's search: token ids in, hypotheses out. `plain` is the reference; the others are fast."""
