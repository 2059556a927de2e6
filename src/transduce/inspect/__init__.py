"""Looking inside a translation: attention, search, probabilities, in numbers and as a page."""
