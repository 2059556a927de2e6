"""Whole models, built from the parts in `nn`."""
