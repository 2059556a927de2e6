"""Models that read text: masked tokens, denoising, vectors of texts."""
