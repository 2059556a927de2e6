"""Constituency parsing (section 6.3): trees, grammar of the search, metric, public class, command."""
