"""Text files, formats of sentence pairs, and the tokenizer."""
