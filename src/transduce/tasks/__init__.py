"""Tasks define the examples, the loss and the validation of a kind of training: one file per task."""
