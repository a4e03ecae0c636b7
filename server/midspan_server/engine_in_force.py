"""The engine of the checkpoint in force: one client, replaced when the settings name another checkpoint."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence

from midspan_engine.errors import MidspanError
from midspan_engine.protocol import EngineStatus, Lend
from midspan_server.engine_client import EngineClient
from midspan_server.text import valid


class EngineInForce:
    """Connects on first need."""

    def __init__(self, connect: Callable[[str | None], EngineClient]) -> None:
        """Takes how to reach the engine of a checkpoint."""
        self._connect = connect
        self._current: tuple[str | None, EngineClient] | None = None
        self._chores: set[asyncio.Task[None]] = set()

    def of(self, checkpoint: str | None) -> EngineClient:
        """Returns the engine of a checkpoint and leaves that of another; raises InputError when it cannot be reached
        at all.
        """
        if self._current is None or self._current[0] != checkpoint:
            engine = self._connect(checkpoint)
            if self._current is not None:
                self._later(self._current[1].close())
            self._current = (checkpoint, engine)
        return self._current[1]

    async def status(self) -> EngineStatus | None:
        """Returns the state of the engine if this client has talked to it and it still runs."""
        return await self._current[1].status() if self._current is not None else None

    def forget(self, uri: str) -> None:
        """Has the engine drop what it keeps for a document."""
        if self._current is not None:
            self._current[1].forget(valid(uri))

    def lend(self, files: Sequence[Lend]) -> None:
        """Lends the engine files."""
        if self._current is not None:
            self._current[1].lend(files)

    async def close(self) -> None:
        """Leaves the engine."""
        if self._current is not None:
            await self._current[1].close()

    def _later(self, chore: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(_quietly(chore))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)


async def _quietly(chore: Coroutine[object, object, None]) -> None:
    """Runs what the user neither waits for nor can mend."""
    with contextlib.suppress(MidspanError):
        await chore
