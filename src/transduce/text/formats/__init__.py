"""File formats of sentence pairs."""
