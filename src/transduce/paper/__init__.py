"""The claims of "Attention Is All You Need", measured: its tables, and its text where it can be checked."""
