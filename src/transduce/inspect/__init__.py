"""Inspection of a translation: attention, search tree and probabilities, as numbers and as a web page."""
