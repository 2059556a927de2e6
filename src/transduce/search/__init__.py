"""From next-word scores to whole sentences. Search knows no model: it makes three calls and sees nothing else."""
