"""From files to lines of text, and from text to token ids."""
