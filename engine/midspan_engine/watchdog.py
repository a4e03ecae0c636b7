"""Notices a model thread that takes no step any more: a driver that hangs, a kernel that never returns."""

from __future__ import annotations

from collections.abc import Sequence

from midspan_engine.job_queue import Job

HANG_S = 60.0
"""So long a single step may take. A step of the embedded checkpoint takes 20 ms, one of 26 billion weights on a CPU
several seconds.
"""


class Watchdog:
    """Compares the signs of life of the running jobs from tick to tick.

    It counts ticks, not time: of a process that was stopped, or of a laptop that slept, time passes all the same.
    """

    def __init__(self, tick_s: float) -> None:
        self._n_allowed = max(1, round(HANG_S / tick_s))
        self._n_silent = 0
        self._last: list[tuple[Job, int]] = []

    def is_hanging(self, running: Sequence[Job]) -> bool:
        """Takes one look at the jobs that run; True when none of them has shown a sign for too many looks."""
        seen = [(job, job.n_signs) for job in running]
        self._n_silent = self._n_silent + 1 if seen and seen == self._last else 0
        self._last = seen
        return self._n_silent > self._n_allowed
