"""How good a translation is, and whether one system is better than another."""
