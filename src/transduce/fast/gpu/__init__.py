"""The CUDA engine: float16, continuous batching in slots, beam search on the GPU, one CUDA graph per step."""
