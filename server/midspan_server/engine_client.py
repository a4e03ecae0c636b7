"""The front end's side of the engine socket: many fills at once, lost engines replaced, failing ones left alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import Self

import msgspec

from midspan_engine.errors import EngineError, EngineUnavailable, InputError, MidspanError
from midspan_engine.framing import pack, read_reply
from midspan_engine.protocol import (
    Cancel,
    Draft,
    EngineStatus,
    Failed,
    Fill,
    Filled,
    Forget,
    Reply,
    Request,
    Shutdown,
    StatusRequest,
)
from midspan_server.launch import Launch, Streams

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 64 * 2**20
"""Requests kept for an engine that does not read, about one of the longest; then it counts as lost."""

ANSWER_TIMEOUT_S = 10.0
"""Patience for a status or a shutdown. The host's loop stalls for a second or two while torch is imported."""

GRACE_S = 5.0
"""How long after its deadline a fill may stay without an answer before the engine is asked for a sign of life, and how
often it is asked from then on. A choice: longer than the turn of another window's fill, shorter than users wait.
"""

LIFE_TIMEOUT_S = 3.0
"""Patience for that sign. A host that has loaded answers a status in milliseconds, its loop is never busy for long."""

MAX_BACKOFF_S = 60.0


class EngineClient:
    """Talks to the resident engine of one launch, starting it when a fill needs it; `async with` closes it."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._ids = itertools.count(1)
        self._connection: _Connection | None = None
        self._opening: asyncio.Task[_Connection] | None = None
        self._backoff = _Backoff()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def fill(self, request: Fill, on_draft: Callable[[Draft], None] | None = None) -> Filled:
        """Returns the engine's answer; replies carry an id of this client's own, not the one of `request`.

        Cancelling the awaiting task withdraws the fill. A fill whose engine dies is asked once more of a new engine;
        an engine that gives no sign of life is left.
        Raises InputError or EngineError as the engine says, and EngineUnavailable when there is no engine.
        """
        for _ in range(2):
            connection = await self._connected()
            numbered = msgspec.structs.replace(request, id=next(self._ids))
            vigil = asyncio.create_task(self._watch(connection, (request.deadline_ms or 0.0) / 1000))
            try:
                reply = await connection.ask(numbered, on_draft)
            except _ConnectionLost:
                continue
            finally:
                vigil.cancel()
            self._backoff = _Backoff()
            if isinstance(reply, Filled):
                return reply
            raise _error_of(reply)
        raise EngineUnavailable(f"the engine died twice at this request; its log is {self._launch.log}")

    async def status(self) -> EngineStatus | None:
        """Returns the state of the running engine, None when none runs. Never starts one.

        Raises EngineUnavailable for an engine that does not answer.
        """
        connection = await self._connected_if_running()
        if connection is None:
            return None
        try:
            return await self._status_of(connection)
        except _ConnectionLost:
            return None

    async def forget(self, document: str) -> None:
        """Tells the engine that a document was closed; without a connection it holds nothing of ours."""
        if self._connection is not None and not self._connection.is_lost:
            with contextlib.suppress(_ConnectionLost):
                self._connection.send(Forget(document=document))

    async def shutdown_host(self) -> bool:
        """Ends the running engine, by force if it does not react; False when none runs.

        Raises EngineUnavailable when it does not go.
        """
        try:
            connection = await self._connected_if_running()
            if connection is None:
                return False
            connection.send(Shutdown())
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await connection.lost.wait()
        except _ConnectionLost:
            pass  # it was on its way out already
        except (TimeoutError, EngineUnavailable):
            await self._launch.kill()
        return True

    async def close(self) -> None:
        """Leaves the engine, which goes on for other clients; fills still awaited raise EngineUnavailable."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> _Connection:
        """Returns the live connection, opened by one task for all who wait: a cancelled fill must not stop it."""
        if self._is_closed:
            raise EngineUnavailable("this client was closed; make a new one")
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            if self._is_closed:
                raise EngineUnavailable("this client was closed while the engine was starting") from None
            raise

    async def _open(self) -> _Connection:
        connection = await self._connected_if_running()
        if connection is not None:
            return connection
        self._backoff.admit()
        try:
            connection = await self._greet(await self._launch.start())
        except EngineUnavailable as error:
            self._backoff.reason = str(error)
            raise
        if connection is None:
            raise EngineUnavailable(f"the engine died as soon as it was started; its log is {self._launch.log}")
        return connection

    async def _connected_if_running(self) -> _Connection | None:
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        streams = await self._launch.connect()
        return None if streams is None else await self._greet(streams)

    async def _greet(self, streams: Streams) -> _Connection | None:
        """Adopts a connection once the host has answered on it; None when it ends before.

        The socket of a dying host still accepts: without this a fill would be wasted on it.
        """
        connection = _Connection(streams)
        try:
            await self._status_of(connection)
        except _ConnectionLost:
            return None
        except BaseException:
            connection.abandon()
            raise
        if self._connection is not None and not self._connection.is_lost:  # somebody else connected meanwhile
            connection.abandon()
        else:
            self._connection = connection
        return self._connection

    async def _status_of(self, connection: _Connection, timeout_s: float | None = None) -> EngineStatus:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S if timeout_s is None else timeout_s):
                reply = await connection.ask(StatusRequest(id=next(self._ids)))
        except TimeoutError as error:
            raise EngineUnavailable(
                f"the engine does not answer; end it with `midspan engine stop`, its log is {self._launch.log}"
            ) from error
        if isinstance(reply, EngineStatus):
            connection.is_loading = reply.state == "loading"
            return reply
        raise _error_of(reply)

    async def _watch(self, connection: _Connection, deadline_s: float) -> None:
        """Gives a connection up when the engine, late with an answer, does not tell its status either."""
        await asyncio.sleep(deadline_s + GRACE_S)
        try:
            while True:
                # The import of torch stalls a loading host.
                await self._status_of(connection, ANSWER_TIMEOUT_S if connection.is_loading else LIFE_TIMEOUT_S)
                await asyncio.sleep(GRACE_S)
        except _ConnectionLost:
            pass  # whoever waits for the fill is told by the connection
        except MidspanError as error:
            connection.give_up(error)


class _ConnectionLost(Exception):
    """The connection ended before the answer came."""


class _Connection:
    """One stream to a host: the requests awaiting an answer and the task that reads the answers."""

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

        Raises _ConnectionLost when the stream ends first, the reason where the connection is given up, and whatever
        `on_draft` raises.
        """
        waiting = self._waiting[request.id] = _Waiting(on_draft)
        try:
            self.send(request)
            return await waiting.answer
        finally:
            del self._waiting[request.id]
            if isinstance(request, Fill) and not waiting.is_answered:
                with contextlib.suppress(_ConnectionLost):
                    self.send(Cancel(id=request.id))

    def send(self, request: Request) -> None:
        """Sends a request without waiting for the engine to read it."""
        frame = pack(request)
        if self.is_lost or self._writer.is_closing():
            raise _ConnectionLost
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            logger.warning("left an engine that does not read its requests")
            self._writer.transport.abort()
            raise _ConnectionLost
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
            waiting.fail(self._reason or _ConnectionLost())

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


class _Backoff:
    """Spaces the starts of an engine that does not live to answer.

    The first start and one more (the retry of the fill that was interrupted) are free; after that the pause doubles
    from 2 s up to MAX_BACKOFF_S. An answer is followed by a new `_Backoff`.
    """

    def __init__(self) -> None:
        self.reason = "the engine died before it could answer"
        self._n_starts = 0
        self._not_before = 0.0

    def admit(self) -> None:
        """Counts one start, or raises EngineUnavailable with the reason when it comes too early."""
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            raise EngineUnavailable(f"{self.reason}; trying again in {self._not_before - now:.0f} s")
        self._n_starts += 1
        if self._n_starts > 1:
            self._not_before = now + min(2.0 ** (self._n_starts - 1), MAX_BACKOFF_S)


def _error_of(reply: Filled | Failed | EngineStatus) -> Exception:
    if isinstance(reply, Failed):
        return InputError(reply.message) if reply.is_input else EngineError(reply.message)
    return EngineError(f"the engine answered with a {type(reply).__name__}; restart it with `midspan engine stop`")


def _retrieve(task: asyncio.Task[_Connection]) -> None:
    """Marks the error of an opening that nobody waits for any more as seen."""
    if not task.cancelled():
        task.exception()
