"""Images and sounds as arrays of numbers."""
