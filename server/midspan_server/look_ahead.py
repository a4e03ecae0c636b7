"""A guess while nobody asks: what comes after the suggestion on the screen, there once that is accepted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from midspan_engine.errors import MidspanError

IDLE_S = 0.1
"""Without a request for so long, the engine is taken to be idle. Chosen: the pause of a fast typist between keys."""


class LookAhead:
    """Runs at most one guess, which any real request takes the engine from."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, guess: Callable[[], Awaitable[None]]) -> None:
        """Makes a guess once it is quiet, instead of the one under way."""
        self.drop()
        self._task = asyncio.create_task(_when_idle(guess))

    def drop(self) -> None:
        """Gives the guess up, waiting or running."""
        if self._task is not None:
            self._task.cancel()
            self._task = None


async def _when_idle(guess: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(IDLE_S)
    with contextlib.suppress(MidspanError):  # nobody waits for it; the next request meets the same fault and tells
        await guess()
