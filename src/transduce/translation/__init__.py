"""Text to text: rules of text, the translator, metrics, commands."""
