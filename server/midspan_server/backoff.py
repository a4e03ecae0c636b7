"""Spaces the starts of an engine that does not live to answer."""

from __future__ import annotations

import asyncio

from midspan_engine.errors import EngineUnavailable

MAX_BACKOFF_S = 60.0


class Backoff:
    """Admits starts and remembers why the last one was in vain.

    The first start and one more (the retry of the fill that was interrupted) are free; after that the pause doubles
    from 2 s up to MAX_BACKOFF_S. An answer is followed by a new `Backoff`.
    """

    def __init__(self) -> None:
        self._reason = "the engine died before it could answer"
        self._n_starts = 0
        self._not_before = 0.0

    def admit(self) -> None:
        """Counts one start, or raises EngineUnavailable with the reason when it comes too early."""
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            raise EngineUnavailable(f"{self._reason}; trying again in {self._not_before - now:.0f} s")
        self._n_starts += 1
        self._pause()

    def fail(self, reason: str) -> None:
        """Remembers why an engine is of no use; the pause counts from now, a start itself may take long."""
        self._reason = reason
        self._pause()

    def _pause(self) -> None:
        if self._n_starts > 1:
            pause_s = min(2.0 ** (self._n_starts - 1), MAX_BACKOFF_S)
            self._not_before = asyncio.get_running_loop().time() + pause_s
