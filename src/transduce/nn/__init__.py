"""The parts of the Transformer. They work on packed tokens; only attention combines tokens with each other."""
