"""Inspection of translations and texts: attention, search tree and probabilities, as numbers and as a web page."""
