"""A client of `midspan lsp`, as an editor is one: a process of its own, JSON over pipes, default settings.

The server and its engine get a folder of their own for settings, sockets and logs, so that neither the user's settings
nor an engine that runs already are measured.
"""

from __future__ import annotations

import itertools
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from midspan_engine.errors import EngineError
from midspan_engine.evaluation.cases import Case, name_of
from midspan_engine.evaluation.methods import Attempt
from midspan_engine.training.corpus import SourceFile

PATIENCE_S = 120.0
"""The first answer waits for the engine to start and to load its model, on a slow disk too."""
_AUTOMATIC, _INVOKED = 2, 1  # lsprotocol: InlineCompletionTriggerKind
_CLIENT = "Neovim (midspan eval)"
"""The front end knows that Neovim itself waits before it asks, and adds no wait of its own for the next key. Ours comes
with the answer, faster than a person's, so it would always wait.
"""


class Position(msgspec.Struct, frozen=True):
    """A place in a document: 0-based line, and character in code points."""

    line: int
    character: int


class _Range(msgspec.Struct, frozen=True):
    start: Position
    end: Position


class _Item(msgspec.Struct, frozen=True, rename={"insert_text": "insertText"}):
    insert_text: str
    range: _Range


class _Items(msgspec.Struct, frozen=True):
    items: list[_Item]


class Offer(msgspec.Struct, frozen=True):
    """What the server answers at the cursor."""

    text: str
    """The best suggestion; empty for silence."""
    ms: float
    """From sending the request to reading the answer."""


class Asked(msgspec.Struct, frozen=True):
    """A request that waits for its answer."""

    which: int
    at: Position
    at_s: float


class LanguageServer:
    """One server process and one document open in it, whose text is kept here too."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Takes a process with pipes, and the folder that holds its workspaces."""
        assert process.stdin is not None, "the server is started with pipes"
        assert process.stdout is not None, "the server is started with pipes"
        self._process, self._input = process, process.stdin
        self.folder = folder
        self._known: set[str] = set()
        """The workspaces whose files the engine has taken in."""
        self._ids = itertools.count(1)
        self._uris = itertools.count(1)
        self._uri = ""
        self._version = 0
        self._text = ""
        # A thread reads: a pipe that stays silent must not hang the evaluation.
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=_read, args=(process.stdout, self._messages), daemon=True).start()

    @classmethod
    @contextmanager
    def running(
        cls,
        checkpoint: Path,
        settings: Mapping[str, object] | None = None,
        *,
        is_awake: bool = True,
        files: Iterable[SourceFile] = (),
    ) -> Iterator[LanguageServer]:
        """Runs a server with a checkpoint for the length of the block, and an engine from the start if `is_awake`.

        The packages of `files` are workspace folders on the disk. Raises EngineError when they cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix="midspan-eval-") as folder:
            places = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "MIDSPAN_RUNTIME_DIR")
            own = {name: str(Path(folder, name.lower())) for name in places}
            environment = {**os.environ, **own, "MIDSPAN_CHECKPOINT": str(checkpoint.resolve())}
            program = [sys.executable, "-P", "-m", "midspan_server"]
            process = subprocess.Popen(
                [*program, "lsp"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            try:
                server = cls(process, Path(folder, "workspaces"))
                for file in files:
                    path = server.folder / name_of(file)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(file.text, encoding="utf-8", newline="")
                server._greet(settings or {})
                if is_awake:
                    server._wake()
                yield server
            finally:
                assert process.stdin is not None, "the server is started with pipes"
                process.stdin.close()  # the server leaves with its client
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                subprocess.run([*program, "engine", "stop"], env=environment, capture_output=True, timeout=PATIENCE_S)

    def open(self, text: str, file: str = "") -> None:
        """Opens another document, a Python file, and closes the one before; `file` names it if it is in a workspace."""
        if self._uri:
            self._notify("textDocument/didClose", {"textDocument": {"uri": self._uri}})
        path = self.folder / file if file else Path(f"/evaluation/file_{next(self._uris)}.py")
        self._uri, self._version, self._text = path.as_uri(), 1, text
        document = {"uri": self._uri, "languageId": "python", "version": self._version, "text": text}
        self._notify("textDocument/didOpen", {"textDocument": document})

    def insert(self, offset: int, text: str) -> None:
        """Types text at an offset of the document."""
        at = self._position(offset)
        self._version += 1
        self._text = self._text[:offset] + text + self._text[offset:]
        self._notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": self._uri, "version": self._version},
                "contentChanges": [{"range": {"start": at, "end": at}, "text": text}],
            },
        )

    def complete(self, offset: int, *, by_hand: bool = False) -> Offer:
        """Asks for an inline completion and waits for the answer. Raises EngineError when there is none."""
        return self.answer(self.ask(offset, by_hand=by_hand))

    def ask(self, offset: int, *, by_hand: bool = False) -> Asked:
        """Asks for an inline completion. A later request of the document replaces it."""
        at = self._position(offset)
        params = {
            "textDocument": {"uri": self._uri},
            "position": at,
            "context": {"triggerKind": _INVOKED if by_hand else _AUTOMATIC},
        }
        return Asked(self._request("textDocument/inlineCompletion", params), at, time.perf_counter())

    def answer(self, asked: Asked) -> Offer:
        """Waits for an answer; those to requests before it are passed over. Raises EngineError when there is none.

        A suggestion that would replace text is none at the cursor and counts as silence.
        """
        answer = msgspec.convert(self._result("textDocument/inlineCompletion", asked.which), _Items)
        ms = (time.perf_counter() - asked.at_s) * 1e3
        here = _Range(asked.at, asked.at)
        return Offer(next((item.insert_text for item in answer.items if item.range == here), ""), ms)

    def counts(self) -> Counter[str]:
        """Returns what the server has counted, and how many passes the engine's last answer cost it.

        `recalled` are answers without the engine, `carried_steps` the passes made before the last key.
        """
        status = self._ask("midspan/status", None)
        return Counter(status["counts"]) + Counter({"carried_steps": (status["stats"] or {}).get("carried_steps", 0)})

    def attempt(self, case: Case) -> Attempt:
        """Fills a case's gap as the editor would show it: filters and confidence of the front end, a warm prefix.

        Several lines are asked for by hand, as the front end demands. What is shown has a confidence of 1.
        """
        prefix, suffix = case.prefix, case.suffix
        self.open(prefix[:-1] + suffix, case.file)
        self.complete(max(0, len(prefix) - 1))
        self.wait_for_files(case.workspace)
        self.insert(max(0, len(prefix) - 1), prefix[-1:])
        offer = self.complete(len(prefix), by_hand=not case.is_one_line)
        return Attempt(offer.text, float(bool(offer.text)), offer.ms, 0)

    def wait_for_files(self, workspace: str) -> None:
        """Waits until the engine has taken the files in that lie beside the document, which was asked for by now."""
        deadline = time.monotonic() + PATIENCE_S
        while workspace not in self._known:
            status = self._ask("midspan/status", None)
            if status["n_lent"] is not None and status["engine"] and status["engine"]["is_up_to_date"]:
                self._known.add(workspace)
            elif time.monotonic() > deadline:
                raise EngineError(f"the language server did not read the files of {workspace}")
            else:
                time.sleep(0.05)

    def _greet(self, settings: Mapping[str, object]) -> None:
        folders = sorted(self.folder.iterdir()) if self.folder.exists() else []
        capabilities = {
            "general": {"positionEncodings": ["utf-32"]},
            "textDocument": {"inlineCompletion": {}},
        }
        params = {
            "processId": os.getpid(),
            "rootUri": None,
            "workspaceFolders": [{"uri": path.as_uri(), "name": path.name} for path in folders],
            "clientInfo": {"name": _CLIENT},
            "capabilities": capabilities,
            "initializationOptions": dict(settings),
        }
        greeted = self._ask("initialize", params)
        assert greeted["capabilities"].get("positionEncoding") == "utf-32", "our server counts as its client asks"
        self._notify("initialized", {})

    def _wake(self) -> None:
        """Has the engine started, so that a fault shows before anything is measured."""
        self.open("def add(a, b):\n    return \n")
        self.complete(len("def add(a, b):\n    return "))
        status = self._ask("midspan/status", None)
        if status["state"] == "failed":
            raise EngineError(f"the language server cannot be measured: {status['reason']}")

    def _position(self, offset: int) -> Position:
        before = self._text[:offset]
        return Position(before.count("\n"), offset - (before.rfind("\n") + 1))

    def _notify(self, method: str, params: object) -> None:
        self._send({"method": method, "params": params})

    def _ask(self, method: str, params: object) -> Any:
        return self._result(method, self._request(method, params))

    def _request(self, method: str, params: object) -> int:
        which = next(self._ids)
        self._send({"id": which, "method": method, "params": params})
        return which

    def _result(self, method: str, which: int) -> Any:
        while True:
            try:
                message = self._messages.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise EngineError(f"the language server did not answer {method} within {PATIENCE_S:.0f} s") from None
            if message is None:
                raise EngineError("the language server ended; `midspan demo` shows whether it works on this machine")
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": None})
            elif message.get("id") == which:
                if "error" in message:
                    raise EngineError(f"the language server refused {method}: {message['error']['message']}")
                return message["result"]

    def _send(self, message: dict[str, object]) -> None:
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        try:
            self._input.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self._input.flush()
        except BrokenPipeError:
            pass  # its last words are in the queue, and the end of them


def _read(pipe: IO[bytes], messages: queue.Queue[dict[str, Any] | None]) -> None:
    """Puts the messages of a pipe into a queue, and None at its end."""
    length = 0
    with pipe:
        while line := pipe.readline():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif not line.strip():
                messages.put(msgspec.json.decode(pipe.read(length)))
    messages.put(None)
