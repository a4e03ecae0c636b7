"""The fills that are under way, one for each document: the newest request wins, the older is answered at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from midspan_engine.protocol import Filled
from midspan_server.silence import Silence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn(Generic[T]):
    """What to ask the engine for a request, and what becomes of its answer."""

    fill: Coroutine[Any, Any, Filled]
    outcome: Callable[[Filled], T | Silence]


class _Flight:
    def __init__(self, fill: Coroutine[Any, Any, Filled]) -> None:
        self.task = asyncio.create_task(fill)
        self.silence: Silence | None = None


class Flights:
    """Waits for the engine on behalf of the newest request of each document."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight] = {}

    async def answer(self, document: str, fill: Coroutine[Any, Any, Filled]) -> Filled | Silence:
        """Returns what a fill comes to, or at once the silence of a request that was ended.

        Cancelling the awaiting task withdraws the fill. Raises whatever the fill does.
        """
        waiting = asyncio.current_task()
        flight = self._flights[document] = _Flight(fill)
        try:
            return await flight.task
        except asyncio.CancelledError:
            is_withdrawn = waiting is not None and waiting.cancelling()
            if flight.silence is None or is_withdrawn:
                raise
            return flight.silence
        finally:
            if self._flights.get(document) is flight:
                del self._flights[document]

    def end(self, document: str, silence: Silence) -> None:
        """Answers the request that is waiting for a document, if there is one."""
        flight = self._flights.pop(document, None)
        if flight is not None:
            flight.silence = silence
            flight.task.cancel()
