"""The engine for CPUs: C code with 8-bit integers, compiled on this machine if it has a compiler."""
