"""Fast implementations: Triton kernels, and the decoding engines `gpu` and `native`."""
