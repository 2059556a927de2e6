"""Everything that happens between a corpus and a trained model."""
