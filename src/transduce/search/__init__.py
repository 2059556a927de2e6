"""Search: from next-token logits to complete outputs. It uses a model only through the three calls of `Decoder`."""
