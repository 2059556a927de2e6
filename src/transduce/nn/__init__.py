"""The parts of the Transformer, each on flat runs of tokens; positions meet only in attention."""
