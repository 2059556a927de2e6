"""The commands of translation."""
