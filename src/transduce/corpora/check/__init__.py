"""Checks of a corpus: leaks, duplicates, misaligned pairs and wrong languages."""
