"""The front end's side of the engine socket: lost engines are replaced, failing ones left alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Self

import msgspec

from midspan_engine.errors import EngineError, EngineUnavailable, InputError, MidspanError
from midspan_engine.protocol import (
    Draft,
    EngineStatus,
    Failed,
    Fill,
    Filled,
    Forget,
    Idle,
    Lend,
    Report,
    Shutdown,
    StatusRequest,
    idle_seconds,
)
from midspan_server.backoff import Backoff
from midspan_server.engine_connection import Connection, ConnectionLost
from midspan_server.launch import Launch, Streams
from midspan_server.text import valid

ANSWER_TIMEOUT_S = 10.0
"""Patience for a status or a shutdown. The host's loop stalls for a second or two while torch is imported."""

GRACE_S = 5.0
"""How long after its deadline a fill may stay without an answer before the engine is asked for a sign of life, and how
often it is asked from then on. A choice: longer than the turn of another window's fill, shorter than users wait.
"""

LIFE_TIMEOUT_S = 3.0
"""Patience for that sign. A host that has loaded answers a status in milliseconds, its loop is never busy for long."""

LOADING_POLL_S = 0.25
"""How often a loading engine is asked how far it is: a bar that moves four times a second looks alive."""


REPORT_S = 1.0
"""How late `midspan status` may be about what the front ends have counted."""


class EngineClient:
    """Talks to the resident engine of one launch, starting it when a fill needs it; `async with` closes it."""

    def __init__(
        self,
        launch: Launch,
        *,
        name: str = "",
        on_loading: Callable[[float | None], None] | None = None,
        report: Callable[[], Report] | None = None,
        lent: Callable[[], Iterable[Lend]] = tuple,
    ) -> None:
        """Takes how others may call this client, whom to tell how far the model is (0..1, None when it is over), where
        to learn what this client has counted, for `midspan status`, and the files that every new engine is lent.
        """
        self._launch = launch
        self._name = valid(name)
        self._on_loading = on_loading
        self._following: asyncio.Task[None] | None = None
        self._report = report
        self._lent = lent
        self._reporting: asyncio.TimerHandle | None = None
        self._ids = itertools.count(1)
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._backoff = Backoff()
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
            except ConnectionLost:
                continue
            finally:
                vigil.cancel()
                self._report_soon()
            if isinstance(reply, Failed) and reply.is_final:
                self._backoff.fail(reply.message)
                connection.abandon()
                raise _error_of(reply)
            self._backoff = Backoff()
            if isinstance(reply, Filled):
                return reply
            raise _error_of(reply)
        raise EngineUnavailable(f"the engine died twice at this request; its log is {self._launch.log}")

    def _report_soon(self) -> None:
        """Tells the engine a little later what is counted by then, however many fills end meanwhile."""
        if self._report is not None and self._reporting is None and not self._is_closed:
            self._reporting = asyncio.get_running_loop().call_later(REPORT_S, self._report_now, self._report)

    def _report_now(self, report: Callable[[], Report]) -> None:
        self._reporting = None
        if self._connection is not None:
            with contextlib.suppress(ConnectionLost):
                self._connection.send(report())

    async def status(self) -> EngineStatus | None:
        """Returns the state of the running engine, None when none runs. Never starts one.

        Raises EngineUnavailable for an engine that does not answer.
        """
        connection = await self._connected_if_running()
        if connection is None:
            return None
        try:
            return await self._status_of(connection)
        except ConnectionLost:
            return None

    def forget(self, document: str) -> None:
        """Tells the engine that a document was closed; without a connection it holds nothing of ours."""
        if self._connection is not None and not self._connection.is_lost:
            with contextlib.suppress(ConnectionLost):
                self._connection.send(Forget(document=document))

    def lend(self, files: Iterable[Lend]) -> None:
        """Lends the engine files; one that is not there yet is lent all of them when it is."""
        if self._connection is not None and not self._connection.is_lost:
            with contextlib.suppress(ConnectionLost):
                for file in files:
                    self._connection.send(file)

    async def set_idle(self, minutes: float) -> None:
        """Sets after how many minutes without a fill the running engine leaves. Raises InputError for no such time."""
        idle_seconds(minutes)
        connection = await self._connected_if_running()
        if connection is not None:
            with contextlib.suppress(ConnectionLost):
                connection.send(Idle(minutes=minutes))

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
        except ConnectionLost:
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
        for pending in (self._following, self._reporting):
            if pending is not None:
                pending.cancel()
        if self._connection is not None:
            if self._report is not None:
                self._report_now(self._report)
            await self._connection.close()

    async def _connected(self) -> Connection:
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

    async def _open(self) -> Connection:
        connection = await self._connected_if_running()
        if connection is not None:
            return connection
        self._backoff.admit()
        try:
            connection = await self._greet(await self._launch.start())
        except EngineUnavailable as error:
            self._backoff.fail(str(error))
            raise
        if connection is None:
            raise EngineUnavailable(f"the engine died as soon as it was started; its log is {self._launch.log}")
        return connection

    async def _connected_if_running(self) -> Connection | None:
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        streams = await self._launch.connect()
        return None if streams is None else await self._greet(streams)

    async def _greet(self, streams: Streams) -> Connection | None:
        """Adopts a connection once the host has answered on it; None when it ends before.

        The socket of a dying host still accepts: without this a fill would be wasted on it.
        """
        connection = Connection(streams)
        try:
            status = await self._status_of(connection)
        except ConnectionLost:
            return None
        except BaseException:
            connection.abandon()
            raise
        if self._connection is not None and not self._connection.is_lost:  # somebody else connected meanwhile
            connection.abandon()
        else:
            self._connection = connection
            self.lend(self._lent())
            if connection.is_loading and self._on_loading is not None:
                self._following = asyncio.create_task(self._follow(connection, status, self._on_loading))
        return self._connection

    async def _follow(
        self, connection: Connection, status: EngineStatus, on_loading: Callable[[float | None], None]
    ) -> None:
        """Tells how far the loading is until it is over."""
        try:
            while status.state == "loading":
                on_loading(status.progress)
                await asyncio.sleep(LOADING_POLL_S)
                status = await self._status_of(connection)
        except (ConnectionLost, MidspanError):
            pass  # whoever waits for a fill is told
        finally:
            on_loading(None)

    async def _status_of(self, connection: Connection, timeout_s: float | None = None) -> EngineStatus:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S if timeout_s is None else timeout_s):
                reply = await connection.ask(StatusRequest(id=next(self._ids), client=self._name))
        except TimeoutError as error:
            raise EngineUnavailable(
                f"the engine does not answer; end it with `midspan engine stop`, its log is {self._launch.log}"
            ) from error
        if isinstance(reply, EngineStatus):
            connection.is_loading = reply.state == "loading"
            return reply
        raise _error_of(reply)

    async def _watch(self, connection: Connection, deadline_s: float) -> None:
        """Gives a connection up when the engine, late with an answer, does not tell its status either."""
        await asyncio.sleep(deadline_s + GRACE_S)
        try:
            while True:
                # The import of torch stalls a loading host.
                await self._status_of(connection, ANSWER_TIMEOUT_S if connection.is_loading else LIFE_TIMEOUT_S)
                await asyncio.sleep(GRACE_S)
        except ConnectionLost:
            pass  # whoever waits for the fill is told by the connection
        except MidspanError as error:
            connection.give_up(error)


def _error_of(reply: Filled | Failed | EngineStatus) -> Exception:
    if isinstance(reply, Failed):
        return InputError(reply.message) if reply.is_input else EngineError(reply.message)
    return EngineError(f"the engine answered with a {type(reply).__name__}; restart it with `midspan engine stop`")


def _retrieve(task: asyncio.Task[Connection]) -> None:
    """Marks the error of an opening that nobody waits for any more as seen."""
    if not task.cancelled():
        task.exception()
