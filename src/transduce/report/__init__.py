"""The report of a run, the comparison of runs, and the charts and look of these pages."""
