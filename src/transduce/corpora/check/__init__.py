"""Looking for what spoils a corpus: leaks, repeats, sides that do not belong together, wrong languages."""
