"""Ways to search with a model: token ids in, hypotheses out. `plain` is the truth, the others are fast."""
