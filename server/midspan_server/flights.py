"""The fills that are under way, one for each document: the newest request wins, the older is answered at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from midspan_engine.protocol import Filled
from midspan_server.silence import Silence


class Flights:
    """Waits for the engine on behalf of the newest request of each document."""

    def __init__(self) -> None:
        self._flights: dict[str, asyncio.Future[Filled | Silence]] = {}

    async def answer(self, document: str, fill: Coroutine[Any, Any, Filled]) -> Filled | Silence:
        """Returns what a fill comes to, or at once the silence of a request that was ended.

        Cancelling the awaiting task withdraws the fill. Raises whatever the fill does.
        """
        flight: asyncio.Future[Filled | Silence] = asyncio.get_running_loop().create_future()
        self._flights[document] = flight
        filling = asyncio.create_task(fill)
        filling.add_done_callback(partial(_land, flight))
        try:
            return await flight
        finally:
            filling.cancel()
            if self._flights.get(document) is flight:
                del self._flights[document]

    def end(self, document: str, silence: Silence) -> None:
        """Answers the request that is waiting for a document, if there is one."""
        flight = self._flights.pop(document, None)
        if flight is not None and not flight.done():
            flight.set_result(silence)


def _land(flight: asyncio.Future[Filled | Silence], filling: asyncio.Task[Filled]) -> None:
    """Hands the outcome of a fill to those who still wait for it."""
    if filling.cancelled():
        flight.cancel()
    elif (error := filling.exception()) is not None:
        if not flight.done():
            flight.set_exception(error)
    elif not flight.done():
        flight.set_result(filling.result())
