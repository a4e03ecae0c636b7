"""A raw client of the language server: it sends exactly what a test says, well-formed or not.

The server is a process (`running`), or, where a test is not about that, served in this one (`served`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from midspan_server.lsp import Front, serve
from midspan_server.stdio import open_pipes

URI = "file:///home/me/project/a.py"


class LspError(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Served:
    """A server on the loop of a test, with what a client needs of a process."""

    def __init__(self, stdin: asyncio.WriteTransport, stdout: asyncio.StreamReader, server: asyncio.Task[int]) -> None:
        self.stdin, self.stdout = stdin, stdout
        self._server = server

    async def wait(self) -> int:
        return await asyncio.shield(self._server)


class LspClient:
    """One server and what it has sent so far."""

    def __init__(self, process: asyncio.subprocess.Process | Served) -> None:
        self.process = process
        self.notes: list[tuple[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.configuration: object = None
        """The answer to `workspace/configuration`."""
        self.asked: list[str] = []
        """The requests of the server."""
        self.asked_with: list[tuple[str, Any]] = []
        """The same with their parameters."""
        self.later: dict[str, list[Any]] = {}
        """The ids of the requests that a test answers itself, by their methods."""
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    def send_bytes(self, body: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def notify(self, method: str, params: object = None) -> None:
        self.send({"method": method, "params": params})

    def start(self, method: str, params: object = None) -> tuple[int, asyncio.Future[Any]]:
        """Sends a request; returns its id and its answer to come."""
        which = next(self._ids)
        self._waiting[which] = asyncio.get_running_loop().create_future()
        self.send({"id": which, "method": method, "params": params})
        return which, self._waiting[which]

    async def ask(self, method: str, params: object = None) -> Any:
        """Returns the result of a request. Raises LspError."""
        return await self.start(method, params)[1]

    async def initialize(
        self, capabilities: object = None, options: object = None, folders: Sequence[Path] = ()
    ) -> Any:
        inline = {"textDocument": {"inlineCompletion": {}}}
        params = {
            "processId": os.getpid(),
            "rootUri": None,
            "workspaceFolders": [{"uri": folder.as_uri(), "name": folder.name} for folder in folders],
            "capabilities": inline if capabilities is None else capabilities,
            "initializationOptions": options,
        }
        answer = await self.ask("initialize", params)
        self.notify("initialized", {})
        return answer

    def open(self, text: str, uri: str = URI, language: str = "python", version: int = 1) -> None:
        document = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def change(self, version: int, *changes: object, uri: str = URI) -> None:
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})

    async def inline(self, line: int, character: int, uri: str = URI, kind: int = 2) -> list[dict[str, Any]]:
        """Returns the items of an inline completion."""
        answer = await self.ask("textDocument/inlineCompletion", inline_params(line, character, uri, kind))
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def reason(self) -> str | None:
        """Returns why the last answer was empty, asked of the server itself."""
        status = await self.ask("midspan/status")
        reason: str | None = status["reason"]
        return reason

    async def until_note(self, method: str, text: str = "") -> Any:
        """Waits for a notification whose parameters hold a text, and returns them."""

        def found() -> list[Any]:
            return [params for name, params in self.notes if name == method and text in json.dumps(params)]

        async with self._news:
            await self._news.wait_for(found)
        return found()[0]

    async def until_asked(self, method: str) -> None:
        """Waits for a request of the server."""
        async with self._news:
            await self._news.wait_for(lambda: method in self.asked)

    async def until_error(self, code: int) -> None:
        """Waits for an error that answers no request in particular."""
        async with self._news:
            await self._news.wait_for(lambda: any(error["code"] == code for error in self.errors))

    async def leave(self) -> int:
        """Ends the server in the orderly way and returns its exit status."""
        await self.ask("shutdown")
        self.notify("exit")
        return await self.process.wait()

    async def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()
        await self._reading

    async def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        while line := await out.readline():
            if line.lower().startswith(b"content-length:"):
                n = int(line.split(b":")[1])
                while (await out.readline()).strip():
                    pass
                self._take(json.loads(await out.readexactly(n)))
                async with self._news:
                    self._news.notify_all()
        for waiting in self._waiting.values():
            waiting.cancel()

    def _take(self, message: dict[str, Any]) -> None:
        which = message.get("id")
        if "method" in message and which is not None:
            self.asked.append(message["method"])
            self.asked_with.append((message["method"], message.get("params")))
            if message["method"] in self.later:
                self.later[message["method"]].append(which)
                return
            own = {"workspace/configuration": [self.configuration], "workspace/applyEdit": {"applied": True}}
            result = own.get(message["method"])
            self.send({"id": which, "result": result})
        elif "method" in message:
            self.notes.append((message["method"], message.get("params")))
        elif which is None:
            self.errors.append(message["error"])
        elif "error" in message:
            error = LspError(message["error"]["code"], message["error"]["message"])
            self._waiting.pop(which).set_exception(error)
        else:
            self._waiting.pop(which).set_result(message["result"])


def inline_params(line: int, character: int, uri: str = URI, kind: int = 2) -> dict[str, Any]:
    position = {"line": line, "character": character}
    return {"textDocument": {"uri": uri}, "position": position, "context": {"triggerKind": kind}}


async def is_withdrawn(asked: asyncio.Future[Any]) -> bool:
    """Waits for an answer, and says whether it is the error that a client gets for a request it has taken back."""
    try:
        await asked
    except LspError as error:
        return error.code == -32800
    return False


def at(line: int, start: int, end: int) -> dict[str, Any]:
    """Returns a range inside one line, as JSON."""
    return {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}


def plain(item: dict[str, Any]) -> dict[str, Any]:
    """Returns an item without the command by which its acceptance is reported."""
    return {name: each for name, each in item.items() if name != "command"}


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[LspClient]:
    """Runs a server, and ends it with the client as an editor that is killed does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "midspan_server", "lsp", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    client = LspClient(process)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def served() -> AsyncIterator[LspClient]:
    """Runs a server over pipes in this process, where it need not start first: that takes most of a second."""
    loop = asyncio.get_running_loop()
    (incoming, stdin), (stdout, outgoing) = os.pipe(), os.pipe()
    connection = await open_pipes(os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb"))
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdout, "rb"))
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(stdin, "wb"))
    client = LspClient(Served(writer, reader, asyncio.create_task(serve(Front(), connection))))
    try:
        yield client
    finally:
        await client.close()
