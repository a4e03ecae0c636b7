"""A completer with a real engine client, over the real socket to a host whose answers a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine_host import ScriptedHost, listening
from midspan_server.completion import Completer
from midspan_server.context import Selected
from midspan_server.drafts import ShownDraft, Watch
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch
from midspan_server.settings import Trigger
from midspan_server.silence import Silence, Status
from midspan_server.suggestion import Suggestions
from midspan_server.text import Edit, Position, TextDocument, snapshot

URI = "file:///home/me/a.py"


class Bench:
    """A completer, the host behind it, and what it told the user."""

    def __init__(self, host: ScriptedHost, launch: Launch) -> None:
        self.host = host
        self.told: list[str] = []
        self.shown: list[Status] = []
        self.drafts: list[ShownDraft] = []
        self.watch = Watch(self.drafts.append)
        connect = lambda checkpoint: EngineClient(launch)  # noqa: E731
        self.completer = Completer(connect, self.told.append, self.shown.append, self.watch)

    def open(self, marked: str, uri: str = URI, language: str = "python", path: str = "/home/me/a.py") -> Position:
        """Opens a text with `║` for the cursor and returns the cursor."""
        text = snapshot(marked.replace("║", ""), 1)
        self.completer.documents[uri] = TextDocument(uri, language, text, (path,))
        return text.position_at(marked.index("║"))

    async def ask(
        self, at: Position, uri: str = URI, trigger: Trigger = "automatic", selected: Selected | None = None
    ) -> Suggestions | Silence:
        return await self.completer.complete(uri, at, trigger, selected)

    async def held(self, at: Position, uri: str = URI) -> asyncio.Task[Suggestions | Silence]:
        """Asks, and returns the answer to come once the request has reached the engine."""
        n_before = self.n_asked
        asked = asyncio.create_task(self.ask(at, uri))
        await self.host.until(lambda: self.n_asked > n_before)
        return asked

    @property
    def n_asked(self) -> int:
        """How many fills somebody waited for."""
        return sum(fill.priority != "prefetch" for fill in self.host.fills)

    def type(self, text: str, at: Position, version: int = 2, uri: str = URI) -> Position:
        """Types a text at a place of a document and returns the cursor behind it."""
        document = self.completer.documents[uri]
        offset = document.snapshot.offset_at(at) + len(text)
        document.change([Edit(text, at, at)], version)
        return document.snapshot.position_at(offset)


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    launch = Launch(checkpoint=folder, socket=folder / "run" / "e.sock", log=folder / "log")
    async with listening(launch.socket) as host:
        made = Bench(host, launch)
        try:
            yield made
        finally:
            await made.completer.close()


def reason(answer: Suggestions | Silence) -> str:
    assert isinstance(answer, Silence)
    return answer.reason


def texts(answer: Suggestions | Silence) -> list[str]:
    assert isinstance(answer, Suggestions), answer
    return [item.text for item in answer.items]
