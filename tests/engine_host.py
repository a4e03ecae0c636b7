"""An engine host without a model: the real socket and framing, answers that a test writes itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from midspan_engine.framing import pack, read_request
from midspan_engine.protocol import (
    Cancel,
    Candidate,
    EngineStatus,
    Failed,
    Fill,
    Filled,
    Forget,
    Lend,
    Reply,
    Request,
    StatusRequest,
)

PATIENCE_S = 120.0
"""Ends a scenario that hangs; nothing is meant to take a fraction of it, on a busy machine either."""


def scenario(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a test's coroutine in a loop of its own, and ends it when it hangs."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


def offer(*texts: str) -> Callable[[Fill], Filled]:
    """Returns the answer that offers these texts, best first."""
    return lambda fill: Filled(
        id=fill.id, candidates=tuple(Candidate(gaps=(text,), confidence=0.9 - n / 10) for n, text in enumerate(texts))
    )


class ScriptedHost:
    """Answers every fill with what `answer` makes of it, or holds it while `answer` is None."""

    def __init__(self) -> None:
        self.answer: Callable[[Fill], Filled | Failed] | None = None
        self.fills: list[Fill] = []
        self.cancelled: list[int] = []
        self.forgotten: list[str] = []
        self.lent: list[Lend] = []
        self.connections: list[asyncio.Task[None]] = []
        self.states: list[tuple[str, float]] = []
        """State and progress that the next statuses tell, one by one; after that the host is ready."""
        self.follows_instructions = False
        self.n_statuses = 0
        self.n_gone = 0
        """Connections that have ended."""
        self._held: dict[int, tuple[Fill, asyncio.StreamWriter]] = {}
        self._news = asyncio.Condition()

    async def until(self, claim: Callable[[], bool]) -> None:
        """Waits until a claim about what has arrived is true."""
        async with self._news:
            await self._news.wait_for(claim)

    async def release(self, answer: Callable[[Fill], Filled | Failed]) -> None:
        """Answers all held fills."""
        held, self._held = self._held, {}
        for fill, writer in held.values():
            await self._send(writer, answer(fill))

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await read_request(reader)) is not None:
                await self._take(request, writer)
                async with self._news:
                    self._news.notify_all()
        finally:
            writer.transport.abort()
            self.n_gone += 1
            async with self._news:
                self._news.notify_all()

    async def _take(self, request: Request, writer: asyncio.StreamWriter) -> None:
        match request:
            case Fill():
                self.fills.append(request)
                if self.answer is None:
                    self._held[request.id] = request, writer
                else:
                    await self._send(writer, self.answer(request))
            case Cancel(id=which):
                self.cancelled.append(which)
                if self._held.pop(which, None):
                    await self._send(writer, Filled(id=which, silence="cancelled"))
            case Forget(document=document):
                self.forgotten.append(document)
            case Lend():
                self.lent.append(request)
            case StatusRequest(id=which):
                self.n_statuses += 1
                state, progress = self.states.pop(0) if self.states else ("ready", 1.0)
                status = EngineStatus(
                    id=which,
                    version="0",
                    pid=1,
                    checkpoint="none",
                    device="cpu",
                    state=state,
                    progress=progress,
                    instructions=self.follows_instructions,
                )
                await self._send(writer, status)

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply) -> None:
        writer.write(pack(reply))
        await writer.drain()


@asynccontextmanager
async def listening(socket: Path) -> AsyncIterator[ScriptedHost]:
    """Runs a host at a socket."""
    socket.parent.mkdir(mode=0o700, exist_ok=True)
    host = ScriptedHost()
    server = await asyncio.start_unix_server(host.serve, socket)
    try:
        yield host
    finally:
        server.close()
        for connection in host.connections:
            connection.cancel()
        await asyncio.gather(*host.connections, return_exceptions=True)
