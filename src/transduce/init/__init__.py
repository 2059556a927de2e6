"""`transduce init`: a recipe for a corpus, with an estimate of the run."""
