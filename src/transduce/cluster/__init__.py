"""Translation of many files on several machines with Ray Data."""
