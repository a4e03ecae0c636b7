"""One stream to an engine host: the requests awaiting an answer and the task that reads the answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from midspan_engine.errors import EngineError, MidspanError
from midspan_engine.framing import pack, read_reply
from midspan_engine.protocol import Cancel, Draft, EngineStatus, Failed, Fill, Filled, Reply, Request, StatusRequest
from midspan_server.launch import Streams

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 64 * 2**20
"""Requests kept for an engine that does not read, about one of the longest; then it counts as lost."""


class ConnectionLost(Exception):
    """The connection ended before the answer came."""


class Connection:
    """Asks a host many things at once and hands each answer to the one who asked."""

    def __init__(self, streams: Streams) -> None:
        self.lost = asyncio.Event()
        self.is_loading = False
        """Whether the last status said that the model is not there yet."""
        self._reason: MidspanError | None = None
        self._reader, self._writer = streams
        self._waiting: dict[int, _Waiting] = {}
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(self._end)

    @property
    def is_lost(self) -> bool:
        return self.lost.is_set()

    async def ask(
        self, request: Fill | StatusRequest, on_draft: Callable[[Draft], None] | None = None
    ) -> Filled | Failed | EngineStatus:
        """Sends a request and returns its answer; a fill given up before that is withdrawn.

        Raises ConnectionLost when the stream ends first, the reason where the connection is given up, and whatever
        `on_draft` raises.
        """
        waiting = self._waiting[request.id] = _Waiting(on_draft)
        try:
            self.send(request)
            return await waiting.answer
        finally:
            del self._waiting[request.id]
            if isinstance(request, Fill) and not waiting.is_answered:
                with contextlib.suppress(ConnectionLost):
                    self.send(Cancel(id=request.id))

    def send(self, request: Request) -> None:
        """Sends a request without waiting for the engine to read it."""
        frame = pack(request)
        if self.is_lost or self._writer.is_closing():
            raise ConnectionLost
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            logger.warning("left an engine that does not read its requests")
            self._writer.transport.abort()
            raise ConnectionLost
        self._writer.write(frame)

    def give_up(self, reason: MidspanError) -> None:
        """Leaves an engine that is of no use any more; those who wait for an answer get the reason."""
        logger.warning("left the engine: %s", reason)
        self._reason = reason
        self.abandon()

    def abandon(self) -> None:
        """Leaves without a word; `_end` does the rest."""
        self._reading.cancel()

    async def close(self) -> None:
        """Leaves and waits until the socket is closed."""
        self.abandon()
        await asyncio.gather(self._reading, return_exceptions=True)
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        try:
            while (reply := await read_reply(self._reader)) is not None:
                self._deliver(reply)
        except (EngineError, OSError) as error:
            logger.warning("lost the engine: %s", error)

    def _end(self, reading: asyncio.Task[None]) -> None:
        """Runs when reading is over for whatever reason, even cancelled before its first step."""
        self.lost.set()
        self._writer.transport.abort()
        for waiting in self._waiting.values():
            waiting.fail(self._reason or ConnectionLost())

    def _deliver(self, reply: Reply) -> None:
        waiting = self._waiting.get(reply.id)
        if waiting is None:
            return  # the answer to a fill that was withdrawn
        if isinstance(reply, Draft):
            waiting.show(reply)
        else:
            waiting.finish(reply)


class _Waiting:
    """One request that awaits its answer."""

    def __init__(self, on_draft: Callable[[Draft], None] | None) -> None:
        self.answer: asyncio.Future[Filled | Failed | EngineStatus] = asyncio.get_running_loop().create_future()
        self.is_answered = False
        self._on_draft = on_draft

    def show(self, draft: Draft) -> None:
        if self._on_draft is None or self.answer.done():
            return
        try:
            self._on_draft(draft)
        except Exception as error:  # belongs to the one who asked, not to the reader of everybody's answers
            self.fail(error)

    def finish(self, reply: Filled | Failed | EngineStatus) -> None:
        self.is_answered = True
        if not self.answer.done():
            self.answer.set_result(reply)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
