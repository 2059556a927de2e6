"""Public corpora, the corpus check and the demo corpus."""
