"""From text to token IDs and back."""
