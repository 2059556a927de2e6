"""The engine for a CPU: 8-bit whole numbers, in C that is compiled on this machine where it has a compiler."""
