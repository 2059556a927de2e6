"""Other programs that show the measurements of a run."""
