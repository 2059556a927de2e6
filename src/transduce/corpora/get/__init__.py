"""Public corpora: fetched where they are published, checked, cleaned, and laid out as training takes them."""
