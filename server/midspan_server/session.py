"""A client's side of one language server process: what an editor does, for the demo."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

from midspan_engine.errors import EngineError
from midspan_server.silence import STATUS, Cost
from midspan_server.text import Position

ANSWER_TIMEOUT_S = 120.0
"""The first answer waits for the engine to start and to load its model, on a slow disk too."""

T = TypeVar("T")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the server answered at one position."""

    text: str | None
    """The best suggestion, None for silence."""
    start: Position
    """Where the text goes: it replaces what lies between `start` and `end`."""
    end: Position
    ms: float
    """From sending the request to reading the answer."""
    reason: str | None
    """Why there is silence."""
    stats: Cost | None
    """What the engine's last answer cost, None if there was none yet."""


class _Client(LanguageClient):
    """Keeps what a server that ended had to say."""

    def __init__(self) -> None:
        super().__init__("midspan-demo", "1")
        self._last_words: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def server_exit(self, server: asyncio.subprocess.Process) -> None:
        assert server.stderr is not None, "pygls starts servers with pipes"
        lines = (await server.stderr.read()).decode(errors="replace").strip().splitlines()
        words = lines[-1].removeprefix("midspan: ") if lines else f"it ended with status {server.returncode}"
        self._last_words.set_result(words)

    async def answered(self, reply: Awaitable[T]) -> T:
        """Returns a reply of the server. Raises EngineError when it fails, ends, or does not answer in time."""
        try:
            return await asyncio.wait_for(reply, ANSWER_TIMEOUT_S)
        except TimeoutError as error:
            raise EngineError(f"the language server did not answer within {ANSWER_TIMEOUT_S:.0f} s") from error
        except JsonRpcException as error:
            raise EngineError(f"the language server answered with an error: {error}") from error
        except (RuntimeError, ConnectionError) as error:
            words = await asyncio.wait_for(self._last_words, ANSWER_TIMEOUT_S)
            raise EngineError(f"the language server ended: {words}") from error


class Session:
    """One language server process and one document open in it."""

    def __init__(self, client: _Client, path: Path) -> None:
        self._client = client
        self._uri = path.as_uri()
        self._version = 0

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, path: Path) -> AsyncIterator[Session]:
        """Runs `midspan lsp` and greets it; ends it at the end of the block."""
        # What pygls says about notifications that nobody listens to is not for the user of a demo.
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
        client = _Client()
        # -P: the folder that the demo is called in must never be a source of modules.
        await client.start_io(sys.executable, "-P", "-m", "midspan_server", "lsp")
        try:
            await client.answered(client.initialize_async(_greeting(folder)))
            client.initialized(types.InitializedParams())
            yield cls(client, path)
        finally:
            with contextlib.suppress(EngineError):
                await client.answered(client.shutdown_async(None))
                client.exit(None)
                await client.answered(client.stop())  # type: ignore[no-untyped-call]  # pygls leaves it unannotated

    def open(self, text: str, language: str) -> None:
        """Tells the server the first text of the document."""
        document = types.TextDocumentItem(self._uri, language, self._version, text)
        self._client.text_document_did_open(types.DidOpenTextDocumentParams(document))

    def change(self, text: str) -> None:
        """Replaces the text of the document, as typing would."""
        self._version += 1
        document = types.VersionedTextDocumentIdentifier(self._version, self._uri)
        changes: Sequence[types.TextDocumentContentChangeEvent] = [types.TextDocumentContentChangeWholeDocument(text)]
        self._client.text_document_did_change(types.DidChangeTextDocumentParams(document, changes))

    async def complete(self, at: Position) -> Answer:
        """Asks for an inline completion, then for its cost and, where there is none, the reason.

        Raises EngineError when the server fails or does not answer in time.
        """
        params = types.InlineCompletionParams(
            context=types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic),
            text_document=types.TextDocumentIdentifier(self._uri),
            position=types.Position(at.line, at.character),
        )
        asked = time.perf_counter()
        reply = await self._client.answered(self._client.text_document_inline_completion_async(params))
        ms = (time.perf_counter() - asked) * 1000
        status = await self._client.answered(self._client.protocol.send_request_async(STATUS))
        told = status.stats
        stats = told and Cost(told.ms, told.steps, told.encoder_steps, told.carried_steps, told.decoder_ms)
        items = reply.items if isinstance(reply, types.InlineCompletionList) else reply or []
        if not items:
            return Answer(text=None, start=at, end=at, ms=ms, reason=status.reason, stats=stats)
        text, span = items[0].insert_text, items[0].range
        assert isinstance(text, str), "our server sends plain text"
        assert span is not None, "our server always sends a range"
        start, end = (Position(edge.line, edge.character) for edge in (span.start, span.end))
        return Answer(text=text, start=start, end=end, ms=ms, reason=None, stats=stats)


def _greeting(folder: Path) -> types.InitializeParams:
    """Returns the `initialize` request of a client that shows inline completions."""
    inline = types.InlineCompletionClientCapabilities(dynamic_registration=False)
    return types.InitializeParams(
        process_id=os.getpid(),
        root_uri=folder.as_uri(),
        workspace_folders=[types.WorkspaceFolder(folder.as_uri(), folder.name)],
        capabilities=types.ClientCapabilities(
            text_document=types.TextDocumentClientCapabilities(inline_completion=inline)
        ),
    )
