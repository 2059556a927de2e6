"""What an example is and how a model is judged: one file per task."""
