"""Text files and the formats of sentence pairs."""
