"""What holds for every test: property tests repeat the same examples and have no clock; torch takes one thread."""

from __future__ import annotations

import os

from hypothesis import settings

# Two OpenMP threads on a machine with other work wait for each other: the parity tests took 391 s instead of 30.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy two-core machine stalls for longer than hypothesis' default deadline of 200 ms; a failure must repeat.
settings.register_profile("midspan", deadline=None, derandomize=True)
settings.load_profile("midspan")
