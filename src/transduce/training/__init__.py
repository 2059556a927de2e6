"""Everything that happens between a corpus and a trained model."""

import os

# Threads of OpenMP spin while they wait for each other. By default libgomp spins for milliseconds: if other work takes
# a core, the waiting threads burn the time that the missing one needs (docs/log.md, "CPU training beside other work").
# libgomp reads this when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
