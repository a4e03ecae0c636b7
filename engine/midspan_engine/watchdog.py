"""Notices a model thread that takes no step any more: a driver that hangs, a kernel that never returns."""

from __future__ import annotations

from midspan_engine.job_queue import Job

HANG_S = 60.0
"""So long a single step may take. A step of the embedded checkpoint takes 20 ms, one of 26 billion weights on a CPU
several seconds.
"""


class Watchdog:
    """Compares the signs of life of a running job from tick to tick.

    It counts ticks, not time: of a process that was stopped, or of a laptop that slept, time passes all the same.
    """

    def __init__(self, tick_s: float) -> None:
        self._n_allowed = max(1, round(HANG_S / tick_s))
        self._n_silent = 0
        self._last: tuple[Job, int] | None = None

    def is_hanging(self, running: Job | None) -> bool:
        """Takes one look at the job that runs; True when it has shown no sign for too many looks."""
        seen = None if running is None else (running, running.n_signs)
        self._n_silent = self._n_silent + 1 if seen is not None and seen == self._last else 0
        self._last = seen
        return self._n_silent > self._n_allowed
