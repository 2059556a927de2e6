"""The command line: one file per command, which parses words, calls one function and prints."""
