"""Evaluation of translations: metrics and significance tests."""
