"""The command line: one file per command, which parses its arguments, calls one function and prints."""
