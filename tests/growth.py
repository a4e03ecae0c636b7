"""How the time that something takes grows with its input, whatever the machine and whoever else uses it."""

from __future__ import annotations

import time
from collections.abc import Callable

FACTOR = 8
LINEAR = 3 * FACTOR
"""Well above 8, as linear growth is, and below 64, as quadratic growth is."""


def growth(do: Callable[[int], object], size: int) -> float:
    """Returns how many times the processor time of a size FACTOR times that size takes."""
    return _seconds(do, size * FACTOR) / _seconds(do, size)


def _seconds(do: Callable[[int], object], size: int) -> float:
    """Returns the processor time of the quickest of a few runs."""
    taken = []
    for _ in range(5):
        began = time.process_time()
        do(size)
        taken.append(time.process_time() - began)
    return min(taken)
