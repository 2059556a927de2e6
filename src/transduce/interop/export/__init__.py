"""Exporting models to other toolkits: one module for each format, and the verification of what was written."""
