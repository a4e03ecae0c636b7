"""How many CPU threads the model takes."""

from __future__ import annotations

import os

MAX_THREADS = 4
"""A pass over 64 slots of the small checkpoint is too little work for more."""


def cpu_threads() -> int:
    """Returns half of the cores that this process may use, at least 1 and at most MAX_THREADS.

    Never all of them: OpenMP threads wait for each other at every operation, so on a machine whose cores are all busy
    with other work the slowest decides. Measured on two cores beside a compute job: a denoising step took 590 ms with
    two threads and 37 ms with one.
    """
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MAX_THREADS, n_cores // 2))
